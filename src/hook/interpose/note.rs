//! ELF note in every program that contains memtrace: it tells a preloaded copy to stand back.
#![expect(unsafe_code, reason = "a note has a section of its own, and the loader is called in C")]

use std::ffi::{c_int, c_void};

use crate::elf;

/// Layout of an ELF note: lengths of name and content, a type, and the name padded to four bytes.
#[repr(C)]
struct Note {
    name_length: u32,
    length: u32,
    kind: u32,
    name: [u8; 12],
}

const NAME: &[u8; 12] = b"memtrace\0\0\0\0";
const KIND: u32 = 1;

#[used]
// SAFETY: the section holds data in the form of a note, not code.
#[unsafe(link_section = ".note.memtrace")]
static NOTE: Note = Note { name_length: 9, length: 0, kind: KIND, name: *NAME };

/// Whether the program contains a copy of memtrace other than this one.
pub(in crate::hook) fn program_has_its_own() -> bool {
    let mut found = false;
    // SAFETY: `look` is called only during this call, with `found` as its last argument.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

/// # Safety
/// `info` and `found` as `dl_iterate_phdr` in [`program_has_its_own`] passes them.
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid record.
    let program = unsafe { &*info };
    let is_ours = elf::range(program).contains(&((&raw const NOTE).addr() as u64));
    // SAFETY: the caller's variable, which nothing else uses meanwhile.
    unsafe { found.cast::<bool>().write(!is_ours && elf::note(program, &NAME[..9], KIND).is_some()) };
    // Stops after the first object, which is the program.
    1
}
