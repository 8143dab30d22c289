//! The programs and libraries that are loaded, with their build-ids.

use crate::snapshot::Module;

#[cfg(all(unix, not(target_vendor = "apple")))]
pub(crate) use elf::loaded;

/// Elsewhere addresses are resolved by the `backtrace` crate and stay absolute.
#[cfg(not(all(unix, not(target_vendor = "apple"))))]
pub(crate) fn loaded() -> Vec<Module> {
    Vec::new()
}

#[cfg(all(unix, not(target_vendor = "apple")))]
mod elf {
    #![expect(unsafe_code, reason = "dl_iterate_phdr is a C function")]

    use std::ffi::{CStr, c_int, c_void};

    use super::Module;
    use crate::snapshot::build_id;

    /// Every loaded ELF object, the program first.
    pub(crate) fn loaded() -> Vec<Module> {
        let mut modules: Vec<Module> = Vec::new();
        let list: *mut Vec<Module> = &mut modules;
        // SAFETY: `visit` is called only during this call, with `list` as its last argument.
        unsafe { libc::dl_iterate_phdr(Some(visit), list.cast()) };
        if let Some(program) = modules.first_mut().filter(|m| m.path.is_empty()) {
            program.path = std::env::current_exe().map(|p| p.display().to_string()).unwrap_or_default();
        }
        modules
    }

    /// # Safety
    /// `info` and `list` as `dl_iterate_phdr` in [`loaded`] passes them.
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, list: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record.
        let info = unsafe { &*info };
        // SAFETY: `loaded` passes its list, which nobody else uses meanwhile.
        let list = unsafe { &mut *list.cast::<Vec<Module>>() };
        let headers = headers(info);
        let loads = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
        let start = loads().map(|h| h.p_vaddr).min().unwrap_or(0);
        let end = loads().map(|h| h.p_vaddr.saturating_add(h.p_memsz)).max().unwrap_or(0);
        let base = info.dlpi_addr;
        let notes = headers.iter().filter(|h| h.p_type == libc::PT_NOTE);
        let build_id = notes.filter_map(|h| build_id(note_bytes(base, h))).next().unwrap_or_default().to_vec();
        list.push(Module { path: path(info), build_id, base, range: base.wrapping_add(start)..base.wrapping_add(end) });
        0
    }

    fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
        if info.dlpi_phdr.is_null() {
            return &[];
        }
        // SAFETY: the loader says that this many headers lie there.
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
    }

    fn path(info: &libc::dl_phdr_info) -> String {
        if info.dlpi_name.is_null() {
            return String::new();
        }
        // SAFETY: the loader's name is a C string that lives as long as the object is loaded.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) };
        name.to_string_lossy().into_owned()
    }

    fn note_bytes(base: u64, header: &libc::Elf64_Phdr) -> &[u8] {
        let start = base.wrapping_add(header.p_vaddr) as *const u8;
        // SAFETY: a PT_NOTE segment of a loaded object is mapped and readable in its whole length.
        unsafe { std::slice::from_raw_parts(start, header.p_memsz as usize) }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn this_program_has_a_range_that_holds_its_code() {
            let modules = loaded();
            let here = this_program_has_a_range_that_holds_its_code as fn() as usize as u64;
            let home = modules.iter().find(|m| m.range.contains(&here)).unwrap();
            assert_eq!(home.path, std::env::current_exe().unwrap().display().to_string());
        }
    }
}
