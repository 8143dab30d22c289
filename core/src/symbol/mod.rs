//! Symbolication: finds the functions, files and lines of code addresses in the files of the loaded objects. This
//! happens after recording, once per address.

#[cfg(all(test, target_os = "linux"))]
mod debug_tests;
mod demangle;
mod files;
mod found;
mod object_file;
mod resolve;
mod stacks;

pub use files::SymbolSources;
#[cfg(all(test, target_os = "linux"))]
pub(crate) use files::build_id;
pub use found::FoundNames;
pub(crate) use resolve::label;
pub use resolve::{Resolved, Resolver, without_machinery};
pub use stacks::with_symbols;

use crate::snapshot::{CodeAddress, Frame, LoadedObject, ObjectSpans};

/// What is known about an address besides its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressKind {
    /// The code is not Rust (C libraries, the system).
    pub native: bool,
    /// True if the address's object has no symbol for it, or could not be read. Then the address's only frame is a
    /// label.
    pub unknown: bool,
}

/// Symbolicated addresses.
#[derive(Debug, Default)]
pub struct Symbols {
    /// The addresses, in the order of the input.
    pub addresses: Vec<CodeAddress>,
    /// The frames of all addresses.
    pub frames: Vec<Frame>,
    /// The objects that contain the addresses.
    pub objects: Vec<LoadedObject>,
    /// The kind of each address.
    pub kinds: Vec<AddressKind>,
    /// True if Rust functions have no source lines at all.
    pub no_line_numbers: bool,
    /// Number of addresses of Rust code without a symbol.
    pub unknown_addresses: u64,
    /// The objects with unreadable files, and why.
    pub unreadable_objects: Vec<String>,
}

/// Resolves addresses of another process with the files of its objects, if the build-ids of these files still match. No
/// address occurs twice. `stored` returns what the recording knows of the address with an index. It is called, in
/// order, for each address whose name is not in `found`.
pub fn symbolise_files(
    addresses: &[u64],
    objects: Vec<LoadedObject>,
    sources: &SymbolSources,
    found: &mut FoundNames,
    mut stored: impl FnMut(usize) -> Option<Resolved>,
) -> Symbols {
    let mut symbols = Symbols::default();
    let mut resolver = Resolver::of_files(&objects, sources);
    found.begin(&objects);
    for (index, &address) in addresses.iter().enumerate() {
        let resolved = found.at(index, address, || match stored(index) {
            Some(known) if !known.unknown => known,
            Some(label) => Some(resolver.resolve(address)).filter(|resolved| !resolved.unknown).unwrap_or(label),
            None => resolver.resolve(address),
        });
        symbols.push(address, resolved, &objects, resolver.spans());
    }
    let unreadable = resolver.unreadable();
    symbols.finish(objects, unreadable)
}

impl Symbols {
    /// Adds a resolved address.
    pub fn push(&mut self, address: u64, resolved: &Resolved, objects: &[LoadedObject], spans: &ObjectSpans) {
        let start = self.frames.len() as u32;
        self.frames.extend(resolved.frames.iter().cloned());
        let end = self.frames.len() as u32;
        self.addresses.push(CodeAddress { frames: start..end, ..CodeAddress::in_objects(address, objects, spans) });
        self.kinds.push(AddressKind { native: resolved.native, unknown: resolved.unknown });
        // An unknown address of native code is not counted, because stacks leave native code out by default.
        if resolved.unknown && !resolved.native {
            self.unknown_addresses += 1;
        }
    }

    /// Completes the symbols with the objects.
    #[must_use]
    pub fn finish(self, objects: Vec<LoadedObject>, unreadable_objects: Vec<String>) -> Self {
        let no_line_numbers = no_line_numbers(&self);
        Self { objects, unreadable_objects, no_line_numbers, ..self }
    }
}

/// True if the program has no line numbers. Frames of the standard library do not count: they always have line numbers.
fn no_line_numbers(symbols: &Symbols) -> bool {
    let rust = symbols.addresses.iter().zip(&symbols.kinds).filter(|(_, kind)| !kind.native);
    let range = |address: &CodeAddress| address.frames.start as usize..address.frames.end as usize;
    let frames = rust.flat_map(|(address, _)| &symbols.frames[range(address)]);
    let mut rest = frames.filter(|frame| !crate::sources::is_std(frame.file_or_empty())).peekable();
    rest.peek().is_some() && rest.all(|frame| frame.line.is_none())
}
