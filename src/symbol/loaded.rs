//! The loaded objects of this process, with their build-ids, from `dl_iterate_phdr`.

use memtrace_core::snapshot::LoadedObject;

#[cfg(all(unix, not(target_vendor = "apple")))]
pub(crate) use listed::loaded_objects;

/// On this system memtrace has no list of objects. Addresses stay absolute, and `backtrace` resolves them.
#[cfg(not(all(unix, not(target_vendor = "apple"))))]
pub(crate) fn loaded_objects() -> Vec<LoadedObject> {
    Vec::new()
}

#[cfg(all(unix, not(target_vendor = "apple")))]
mod listed {
    use std::ops::ControlFlow;

    use super::LoadedObject;
    use crate::elf;
    use crate::executable::executable;

    /// Every loaded ELF object, the program first.
    pub(crate) fn loaded_objects() -> Vec<LoadedObject> {
        let mut objects: Vec<LoadedObject> = Vec::new();
        elf::each_object(|info| {
            objects.push(LoadedObject {
                path: Some(elf::path(info).to_string_lossy().into_owned()).filter(|path| !path.is_empty()),
                build_id: elf::build_id_of(info).to_vec(),
                base: info.dlpi_addr,
                range: elf::range(info),
            });
            ControlFlow::Continue(())
        });
        if let Some(program) = objects.first_mut().filter(|m| m.path.is_none()) {
            program.path = executable().map(|path| path.display().to_string());
        }
        objects
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn this_program_has_a_range_that_holds_its_code() {
            let objects = loaded_objects();
            let here = this_program_has_a_range_that_holds_its_code as fn() as usize as u64;
            let home = objects.iter().find(|m| m.range.contains(&here)).unwrap();
            assert_eq!(home.path, Some(std::env::current_exe().unwrap().display().to_string()));
        }
    }
}
