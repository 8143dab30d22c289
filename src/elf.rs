//! Program headers and notes of loaded ELF objects, read from `dl_phdr_info`.
#![cfg_attr(all(unix, not(target_vendor = "apple")), expect(unsafe_code, reason = "reads what the loader has mapped"))]
#![cfg(all(unix, not(target_vendor = "apple")))]

use std::ffi::{CStr, c_int, c_void};
use std::ops::{ControlFlow, Range};

use crate::record::loader;

pub(crate) fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if info.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: the loader guarantees that this many headers are there.
    unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
}

/// Calls `visit` for each loaded object, the program first, until `visit` returns `Break`. The loader is locked
/// meanwhile, so all objects stay loaded. In a forked child whose loader may stay locked for ever, `visit` is not
/// called at all.
pub(crate) fn each_object<F: FnMut(&libc::dl_phdr_info) -> ControlFlow<()>>(mut visit: F) {
    /// # Safety
    /// `info` is the loader's record, and `visit` points to an `F`.
    unsafe extern "C" fn call<F: FnMut(&libc::dl_phdr_info) -> ControlFlow<()>>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        visit: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid record.
        let info = unsafe { &*info };
        // SAFETY: `each_object` passes its closure, which nothing else uses meanwhile.
        let visit = unsafe { &mut *visit.cast::<F>() };
        visit(info).is_break().into()
    }
    let Some(_no_fork) = loader::in_loader() else { return };
    // SAFETY: `call` runs during this call only, with `visit` as its last argument.
    unsafe { libc::dl_iterate_phdr(Some(call::<F>), (&raw mut visit).cast()) };
}

/// The object's file; empty for the program itself.
pub(crate) fn path(info: &libc::dl_phdr_info) -> &CStr {
    if info.dlpi_name.is_null() {
        return c"";
    }
    // SAFETY: the loader's name is a C string that lives as long as the object is loaded.
    unsafe { CStr::from_ptr(info.dlpi_name) }
}

/// The address range that the object occupies.
pub(crate) fn range(info: &libc::dl_phdr_info) -> Range<u64> {
    let loads = || headers(info).iter().filter(|header| header.p_type == libc::PT_LOAD);
    let start = loads().map(|header| header.p_vaddr).min().unwrap_or(0);
    let end = loads().map(|header| header.p_vaddr.saturating_add(header.p_memsz)).max().unwrap_or(0);
    info.dlpi_addr.wrapping_add(start)..info.dlpi_addr.wrapping_add(end)
}

/// The GNU build-id; empty if there is none.
pub(crate) fn build_id_of(info: &libc::dl_phdr_info) -> &[u8] {
    note(info, b"GNU\0", NT_GNU_BUILD_ID).unwrap_or_default()
}

/// The descriptor (content) of the note with this name and type. A segment with a larger alignment than that of notes
/// is skipped: AddressSanitizer pads constants in a program's own note sections, and takes a read of the padding for an
/// error.
pub(crate) fn note<'a>(info: &'a libc::dl_phdr_info, name: &[u8], kind: u32) -> Option<&'a [u8]> {
    let notes = headers(info).iter().filter(|header| header.p_type == libc::PT_NOTE && header.p_align <= 8);
    notes.filter_map(|note| content(bytes(info, note)?, name, kind)).next()
}

/// The bytes of a segment, if the file-backed part of a readable segment contains them. This is checked, because a
/// header may contain any values.
fn bytes<'a>(info: &'a libc::dl_phdr_info, part: &libc::Elf64_Phdr) -> Option<&'a [u8]> {
    let end = part.p_vaddr.checked_add(part.p_memsz)?;
    let holds = |header: &libc::Elf64_Phdr| {
        let readable = header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_R != 0;
        readable && header.p_vaddr <= part.p_vaddr && end <= header.p_vaddr.saturating_add(header.p_filesz)
    };
    if !headers(info).iter().any(holds) {
        return None;
    }
    let start = info.dlpi_addr.wrapping_add(part.p_vaddr) as *const u8;
    // SAFETY: the range lies in the file-backed part of a readable segment.
    Some(unsafe { std::slice::from_raw_parts(start, part.p_memsz as usize) })
}

const NT_GNU_BUILD_ID: u32 = 3;

/// Finds the descriptor of a note in a list of notes. A note is three 32-bit words (name length, descriptor length,
/// type), then the name and the descriptor, each padded to four bytes.
fn content<'a>(mut notes: &'a [u8], wanted: &[u8], kind: u32) -> Option<&'a [u8]> {
    while let Some((header, rest)) = notes.split_at_checked(12) {
        let word = |i: usize| header.get(i * 4..i * 4 + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let (name_length, length) = (word(0)? as usize, word(1)? as usize);
        let (name, rest) = rest.split_at_checked(name_length.checked_next_multiple_of(4)?)?;
        let description = rest.get(..length)?;
        if word(2)? == kind && name.starts_with(wanted) {
            return Some(description);
        }
        notes = rest.get(length.checked_next_multiple_of(4)?..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build_id(notes: &[u8]) -> Option<&[u8]> {
        content(notes, b"GNU\0", NT_GNU_BUILD_ID)
    }

    #[test]
    fn a_note_is_found_behind_other_notes_and_damage_is_refused() {
        let mut notes = Vec::new();
        for (kind, name, text) in [(1u32, b"ABC\0", b"xyz".as_slice()), (3, b"GNU\0", &[1, 2, 3, 4, 5])] {
            notes.extend([4u32, text.len() as u32, kind].iter().flat_map(|w| w.to_ne_bytes()));
            notes.extend_from_slice(name);
            notes.extend_from_slice(text);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(build_id(&notes), Some([1, 2, 3, 4, 5].as_slice()));
        (0..notes.len() - 8).for_each(|n| assert_eq!(build_id(&notes[..n]), None));
        assert_eq!(build_id(&[0xff; 64]), None);
    }

    static IMAGE: [u32; 5] = [4, 4, NT_GNU_BUILD_ID, u32::from_ne_bytes(*b"GNU\0"), 7];

    fn header(p_type: u32, p_align: u64) -> libc::Elf64_Phdr {
        let size = size_of_val(&IMAGE) as u64;
        let (p_offset, p_vaddr, p_paddr) = (0, 0, 0);
        libc::Elf64_Phdr {
            p_type,
            p_flags: libc::PF_R,
            p_offset,
            p_vaddr,
            p_paddr,
            p_filesz: size,
            p_memsz: size,
            p_align,
        }
    }

    /// Whether the build id of an object with these headers is found.
    fn is_found(segment: libc::Elf64_Phdr, note: libc::Elf64_Phdr) -> bool {
        let headers = [segment, note];
        // SAFETY: all fields are numbers or pointers that may be null.
        let mut info: libc::dl_phdr_info = unsafe { std::mem::zeroed() };
        info.dlpi_addr = IMAGE.as_ptr().addr() as u64;
        (info.dlpi_phdr, info.dlpi_phnum) = (headers.as_ptr(), 2);
        !build_id_of(&info).is_empty()
    }

    #[test]
    fn only_notes_aligned_as_notes_are_read() {
        for (align, is_note) in [(0, true), (4, true), (8, true), (32, false)] {
            assert_eq!(is_found(header(libc::PT_LOAD, 4096), header(libc::PT_NOTE, align)), is_note, "{align}");
        }
    }

    #[test]
    fn only_notes_in_readable_bytes_of_the_file_are_read() {
        let (whole, note) = (header(libc::PT_LOAD, 4096), header(libc::PT_NOTE, 4));
        assert!(is_found(whole, note));
        assert!(!is_found(libc::Elf64_Phdr { p_type: libc::PT_GNU_RELRO, ..whole }, note));
        assert!(!is_found(libc::Elf64_Phdr { p_flags: libc::PF_X, ..whole }, note));
        assert!(
            !is_found(libc::Elf64_Phdr { p_filesz: whole.p_filesz - 1, ..whole }, note),
            "zeros that are not in the file"
        );
        assert!(!is_found(libc::Elf64_Phdr { p_vaddr: 1, ..whole }, note), "it begins before the segment");
    }
}
