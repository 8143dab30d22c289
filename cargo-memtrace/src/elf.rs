//! What a program's ELF file shows: memtrace, line tables, libraries.

use std::path::Path;

use memtrace_runner::needs::needed;
use object::{Architecture, Object, ObjectSection, ObjectSymbol, ReadCache};

use crate::failure::CommandFailure;

/// Libraries of CUDA, by the beginnings of their names.
const CUDA: [&str; 6] = ["libcuda.so", "libcudart.so", "libcublas", "libcurand.so", "libnvrtc.so", "libcudnn"];

/// Libraries that replace C's allocator, by the beginnings of their names. The preload library does not record their
/// memory.
const ALLOCATORS: [&str; 7] =
    ["libjemalloc", "libtcmalloc", "libmimalloc", "libasan.so", "libhwasan.so", "liblsan.so", "libtsan.so"];
/// The sanitizers' libraries among these. Some sanitizers do not start if another library is loaded before them.
const SANITIZERS: &[&str] = ALLOCATORS.last_chunk::<4>().expect("there are more").as_slice();

/// The first of these libraries, given as names or paths, that replaces C's allocator.
pub(crate) fn other_allocator<'a>(libraries: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = |library: &'a str| library.rsplit('/').next().unwrap_or(library);
    libraries.into_iter().map(name).find(|name| is_one_of(&ALLOCATORS, name))
}

/// Whether a library is a sanitizer's.
pub(crate) fn is_sanitizer(library: &str) -> bool {
    is_one_of(SANITIZERS, library)
}

fn is_one_of(libraries: &[&str], name: &str) -> bool {
    libraries.iter().any(|library| name.starts_with(library))
}

/// A program's file.
#[derive(Debug, Default)]
pub(crate) struct ProgramFile {
    /// memtrace is linked in; the file then has a note of that name.
    pub(crate) has_memtrace: bool,
    /// rustc built the file and left its mark.
    pub(crate) is_rust: bool,
    pub(crate) is_dynamic: bool,
    /// The architecture is one on which memtrace can hook the CUDA driver.
    pub(crate) has_hooks: bool,
    pub(crate) has_lines: bool,
    pub(crate) has_symbols: bool,
    /// The allocator that the program uses instead of C's, as far as symbols show. Its memory is not seen from outside.
    pub(crate) own_allocator: Option<&'static str>,
    /// A library that replaces C's allocator.
    pub(crate) linked_allocator: Option<String>,
    /// CUDA libraries without which the program does not start.
    pub(crate) cuda_libraries: Vec<String>,
}

impl ProgramFile {
    /// Why the heap cannot be recorded from outside; `None` if it can.
    pub(crate) fn hides_its_heap(&self) -> Option<String> {
        if !self.is_dynamic {
            return Some("it is linked statically, so no library can be preloaded".to_owned());
        }
        if let Some(library) = &self.linked_allocator {
            return Some(format!("it is linked to {library}, which takes the place of C's allocator"));
        }
        let allocator = self.own_allocator?;
        Some(format!("it has an allocator of its own in it ({allocator}), so it does not call C's"))
    }

    /// What the program's file shows; nothing if it is no readable program. Running such a file gives the better error
    /// message, and a script is recorded through its interpreter.
    pub(crate) fn or_script(program: &Path) -> Self {
        Self::read(program).unwrap_or(Self { is_dynamic: true, ..Self::default() })
    }

    pub(crate) fn read(program: &Path) -> Result<Self, CommandFailure> {
        let failed = |why: String| CommandFailure::usage(format!("cannot read {}: {why}", program.display()));
        let opened = memtrace_core::input::open_regular(program).map_err(|error| failed(error.to_string()))?;
        // Only the needed parts are read, because the file may be of another kind, and of any size.
        let bytes = &ReadCache::new(opened);
        let file = object::File::parse(bytes).map_err(|error| failed(format!("it is not an ELF program ({error})")))?;
        let has = |section: &str| file.section_by_name(section).is_some_and(|section| section.size() > 0);
        let comment = file.section_by_name(".comment").and_then(|section| section.data().ok()).unwrap_or_default();
        let mut cuda_libraries = needed(bytes).unwrap_or_default();
        let linked_allocator = other_allocator(cuda_libraries.iter().map(String::as_str)).map(str::to_owned);
        cuda_libraries.retain(|name| CUDA.iter().any(|library| name.starts_with(library)));
        Ok(Self {
            has_memtrace: has(".note.memtrace"),
            is_rust: comment.windows(5).any(|part| part == b"rustc"),
            is_dynamic: has(".dynamic"),
            has_hooks: [Architecture::X86_64, Architecture::Aarch64].contains(&file.architecture()),
            has_lines: has(".debug_line"),
            has_symbols: file.symbols().next().is_some(),
            own_allocator: own_allocator(&file),
            linked_allocator,
            cuda_libraries,
        })
    }
}

/// Recognizes the allocator by the functions that its Rust package links in.
fn own_allocator<'a>(file: &impl Object<'a>) -> Option<&'static str> {
    let named = |symbol: &str| match symbol {
        "mi_malloc" => Some("mimalloc"),
        "_rjem_malloc" | "je_malloc" => Some("jemalloc"),
        "tc_malloc" => Some("tcmalloc"),
        "malloc" => Some("malloc"),
        _ => None,
    };
    let defined = file.symbols().filter(|symbol| symbol.is_definition());
    defined.filter_map(|symbol| named(symbol.name().ok()?)).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_are_known_by_their_libraries_names() {
        assert_eq!(
            other_allocator(["libm.so.6", "/usr/lib/libtcmalloc_minimal.so.4"]),
            Some("libtcmalloc_minimal.so.4")
        );
        assert_eq!(other_allocator(["libc.so.6", "/x/libjemalloc/libc.so", ""]), None);
    }

    #[test]
    fn a_script_hides_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("train.sh");
        std::fs::write(&script, "#!/bin/sh\n./train\n").unwrap();
        for file in [script, folder.path().join("missing")] {
            assert_eq!(ProgramFile::or_script(&file).hides_its_heap(), None);
        }
    }
}
