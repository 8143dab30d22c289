//! Reads from an ELF file which CUDA libraries a program needs to start (`DT_NEEDED`).

use std::fs::File;
use std::path::Path;

use object::elf::{DT_NEEDED, FileHeader64};
use object::endian::Endianness;
use object::read::elf::FileHeader;
use object::read::{ReadCache, ReadRef, Result};

use crate::kit::simulated_libraries;

/// The CUDA libraries; none if the file is no readable program, because starting such a file gives the better error.
pub(crate) fn cuda_libraries(program: &Path) -> Vec<String> {
    let libraries = File::open(program).ok().and_then(|file| needed(&ReadCache::new(file)).ok()).unwrap_or_default();
    // The libraries that the simulated GPU replaces, in any version.
    libraries.into_iter().filter(|name| simulated_libraries().any(|library| name.starts_with(library))).collect()
}

/// The libraries in the dynamic table of an ELF file.
///
/// # Errors
/// If the file is not an ELF program of 64 bits, or damaged.
pub fn needed<'data, R: ReadRef<'data>>(data: R) -> Result<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let table = sections.dynamic_table(endian, data)?;
    let entries = table.iter().filter(|entry| entry.tag == DT_NEEDED);
    entries.map(|entry| Ok(String::from_utf8_lossy(table.string(entry)?).into_owned())).collect()
}
