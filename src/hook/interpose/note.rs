//! A note in the file of every program that has memtrace in it, by which a preloaded copy knows that it is not needed.
#![expect(unsafe_code, reason = "a note has a section of its own, and the loader is asked in C")]

use std::ffi::{c_int, c_void};

use crate::elf;

/// As ELF has notes: the lengths of name and content, a type, the name padded to four bytes.
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
// SAFETY: nobody runs what is in this section; it has the form of a note.
#[unsafe(link_section = ".note.memtrace")]
static NOTE: Note = Note { name_length: 9, length: 0, kind: KIND, name: *NAME };

/// Does the program have a copy of memtrace, other than this one?
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
    // SAFETY: a place of the caller's, which nobody else uses meanwhile.
    unsafe { found.cast::<bool>().write(!is_ours && elf::note(program, &NAME[..9], KIND).is_some()) };
    // The first is the program.
    1
}
