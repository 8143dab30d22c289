//! Which libraries of CUDA a program needs to start.

use std::fs::File;
use std::path::Path;

use object::elf::{DT_NEEDED, FileHeader64};
use object::endian::Endianness;
use object::read::elf::FileHeader;
use object::read::{ReadCache, ReadRef, Result};

/// Those of which the simulated GPU has its own.
const CUDA: [&str; 6] = ["libcuda.so", "libcudart.so", "libcublas.so", "libcublasLt.so", "libcurand.so", "libnvrtc.so"];

/// As the file says (`DT_NEEDED`). None of what cannot be read as a program: starting it will say more.
pub(crate) fn cuda(program: &Path) -> Vec<String> {
    let libraries = File::open(program).ok().and_then(|file| needed(&ReadCache::new(file)).ok()).unwrap_or_default();
    libraries.into_iter().filter(|name| CUDA.iter().any(|library| name.starts_with(library))).collect()
}

fn needed<'data, R: ReadRef<'data>>(data: R) -> Result<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let table = sections.dynamic_table(endian, data)?;
    let mut names = Vec::new();
    for entry in table.iter().filter(|entry| entry.tag == DT_NEEDED) {
        names.push(String::from_utf8_lossy(table.string(entry)?).into_owned());
    }
    Ok(names)
}
