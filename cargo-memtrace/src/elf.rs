//! Reads a program's file: does it contain memtrace?

use std::path::Path;

use object::{Object, ObjectSection};

/// True if the program has memtrace linked in: its file then has a note of that name.
pub(crate) fn has_memtrace(program: &Path) -> bool {
    let Ok(bytes) = std::fs::read(program) else { return false };
    let Ok(file) = object::File::parse(&*bytes) else { return false };
    file.section_by_name(".note.memtrace").is_some_and(|section| section.size() > 0)
}
