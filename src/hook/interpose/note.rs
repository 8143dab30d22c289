//! ELF note in every program that contains memtrace. A preloaded copy of memtrace that finds the note
//! installs no hooks.
#![expect(unsafe_code, reason = "a note has a section of its own")]

use std::ops::ControlFlow;

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
// SAFETY: the section contains data in the form of a note, and no code.
#[unsafe(link_section = ".note.memtrace")]
static NOTE: Note = Note { name_length: 9, length: 0, kind: KIND, name: *NAME };

/// Whether the program contains a copy of memtrace other than this one.
pub(in crate::hook) fn program_has_its_own() -> bool {
    let mut found = false;
    elf::each_object(|program| {
        let is_ours = elf::range(program).contains(&((&raw const NOTE).addr() as u64));
        found = !is_ours && elf::note(program, &NAME[..9], KIND).is_some();
        ControlFlow::Break(())
    });
    found
}
