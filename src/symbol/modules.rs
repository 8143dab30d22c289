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

    const NT_GNU_BUILD_ID: u32 = 3;

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
        let build_id = notes.filter_map(|h| build_id(note_bytes(base, h))).next().unwrap_or_default();
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

    /// The GNU build-id among ELF notes: each is three 32-bit words (name length, description
    /// length, type), the name and the description, both padded to four bytes.
    pub(super) fn build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
        while let Some((header, rest)) = notes.split_at_checked(12) {
            let word = |i: usize| header.get(i * 4..i * 4 + 4)?.try_into().ok().map(u32::from_ne_bytes);
            let (name_length, length) = (word(0)? as usize, word(1)? as usize);
            let (name, rest) = rest.split_at_checked(name_length.checked_next_multiple_of(4)?)?;
            let description = rest.get(..length)?;
            if word(2)? == NT_GNU_BUILD_ID && name.starts_with(b"GNU\0") {
                return Some(description.to_vec());
            }
            notes = rest.get(length.checked_next_multiple_of(4)?..)?;
        }
        None
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

        #[test]
        fn a_build_id_is_found_behind_other_notes_and_damage_is_refused() {
            let mut notes = Vec::new();
            for (kind, name, text) in [(1u32, b"ABC\0", b"xyz".as_slice()), (3, b"GNU\0", &[1, 2, 3, 4, 5])] {
                notes.extend([4u32, text.len() as u32, kind].iter().flat_map(|w| w.to_ne_bytes()));
                notes.extend_from_slice(name);
                notes.extend_from_slice(text);
                notes.resize(notes.len().next_multiple_of(4), 0);
            }
            assert_eq!(build_id(&notes), Some(vec![1, 2, 3, 4, 5]));
            (0..notes.len() - 8).for_each(|n| assert_eq!(build_id(&notes[..n]), None));
            assert_eq!(build_id(&[0xff; 64]), None);
        }
    }
}
