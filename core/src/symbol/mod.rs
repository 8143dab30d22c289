//! Code addresses to functions, files and lines, by the files that they come from: after recording, once for each address.

mod files;
mod resolve;
mod stacks;

pub use resolve::{Resolved, Resolver, without_machinery};
pub use stacks::with_symbols;

use crate::snapshot::{CodeAddress, Frame, LoadedObject, ObjectSpans};

/// What a set of addresses means.
#[derive(Debug, Default)]
pub struct Symbols {
    /// The addresses, as they were given.
    pub addresses: Vec<CodeAddress>,
    /// Their frames.
    pub frames: Vec<Frame>,
    /// The modules that they lie in.
    pub objects: Vec<LoadedObject>,
    /// For each address: not Rust code (C libraries, the system).
    pub native: Vec<bool>,
    /// Rust functions were found, but not one source line.
    pub no_line_numbers: bool,
    /// Addresses of Rust code of which nothing is known.
    pub unknown_addresses: u64,
    /// Modules whose files could not be read, and why.
    pub unreadable_objects: Vec<String>,
}

/// Resolves unique addresses of another process from the files of its modules, where those are still
/// the same by their build-ids; `each` is called after each one.
pub fn symbolise_files(addresses: &[u64], modules: Vec<LoadedObject>, mut each: impl FnMut()) -> Symbols {
    let mut symbols = Symbols::default();
    let mut resolver = Resolver::of_files(&modules);
    for &address in addresses {
        let resolved = resolver.resolve(address);
        symbols.push(address, &resolved, &modules, resolver.spans());
        each();
    }
    let unreadable = resolver.unreadable();
    symbols.finish(modules, unreadable)
}

impl Symbols {
    /// Adds an address with what it means.
    pub fn push(&mut self, address: u64, resolved: &Resolved, modules: &[LoadedObject], spans: &ObjectSpans) {
        let start = self.frames.len() as u32;
        self.frames.extend(resolved.frames.iter().cloned());
        let end = self.frames.len() as u32;
        self.addresses.push(CodeAddress { frames: start..end, ..CodeAddress::in_objects(address, modules, spans) });
        self.native.push(resolved.native);
        // What is not Rust is left out of stacks unless it was asked for.
        if resolved.unknown && !resolved.native {
            self.unknown_addresses += 1;
        }
    }

    /// All addresses are there.
    #[must_use]
    pub fn finish(self, objects: Vec<LoadedObject>, unreadable_objects: Vec<String>) -> Self {
        let no_line_numbers = no_line_numbers(&self);
        Self { objects, unreadable_objects, no_line_numbers, ..self }
    }
}

/// The standard library comes with line numbers of its own, whatever the program was built with.
fn no_line_numbers(symbols: &Symbols) -> bool {
    let rust = symbols.addresses.iter().zip(&symbols.native).filter(|(_, native)| !**native);
    let frames =
        rust.flat_map(|(address, _)| &symbols.frames[address.frames.start as usize..address.frames.end as usize]);
    let mut rest = frames.filter(|frame| !crate::sources::is_std(frame.file_or_empty())).peekable();
    rest.peek().is_some() && rest.all(|frame| frame.line.is_none())
}
