//! Code addresses to functions, files and lines: once per unique address, after recording.

mod files;
mod modules;
mod resolve;

use std::collections::HashMap;
use std::sync::Mutex;

use crate::snapshot::{CodeAddress, Frame, Module, ModuleSpans};
use resolve::{Resolved, Resolver};

/// What a set of addresses means.
#[derive(Default)]
pub(crate) struct Symbols {
    pub(crate) addresses: Vec<CodeAddress>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) modules: Vec<Module>,
    /// For each address: not Rust code (C libraries, the system).
    pub(crate) native: Vec<bool>,
    /// Rust functions were found, but not one source line.
    pub(crate) no_line_numbers: bool,
    pub(crate) unknown_addresses: u64,
    /// Modules whose files could not be read, and why.
    pub(crate) unreadable_modules: Vec<String>,
}

/// Resolved addresses of this process: a second snapshot resolves only what is new. What an address means stays as it is:
/// that of a module which came to the addresses of another one has a number of its own.
static CACHE: Mutex<Option<HashMap<u64, Resolved>>> = Mutex::new(None);

/// Resolves unique addresses of this process; `each` is called after each one. Of its modules so many are loaded, the
/// others are gone, and their files may be others by now.
pub(crate) fn symbolise(addresses: &[u64], modules: Vec<Module>, loaded: usize, mut each: impl FnMut()) -> Symbols {
    let mut symbols = Symbols::default();
    // Held by another thread, perhaps one that a fork left behind: then without the cache.
    let mut shared = CACHE.try_lock().ok();
    let mut own = None;
    let cache = shared.as_deref_mut().unwrap_or(&mut own).get_or_insert_with(HashMap::new);
    let mut resolver = Resolver::new(&modules, loaded);
    for &address in addresses {
        let resolved = cache.entry(address).or_insert_with(|| resolver.resolve(address));
        symbols.push(address, resolved, &modules, resolver.spans());
        each();
    }
    symbols.unreadable_modules = resolver.unreadable();
    symbols.no_line_numbers = no_line_numbers(&symbols);
    symbols.modules = modules;
    symbols
}

/// Resolves unique addresses of another process from the files of its modules, where those are still
/// the same by their build-ids.
pub(crate) fn symbolise_files(addresses: &[u64], modules: Vec<Module>, mut each: impl FnMut()) -> Symbols {
    let mut symbols = Symbols::default();
    let mut resolver = Resolver::of_files(&modules);
    for &address in addresses {
        let resolved = resolver.resolve(address);
        symbols.push(address, &resolved, &modules, resolver.spans());
        each();
    }
    symbols.unreadable_modules = resolver.unreadable();
    symbols.no_line_numbers = no_line_numbers(&symbols);
    symbols.modules = modules;
    symbols
}

pub(crate) use modules::loaded as loaded_modules;

impl Symbols {
    fn push(&mut self, address: u64, resolved: &Resolved, modules: &[Module], spans: &ModuleSpans) {
        let start = self.frames.len() as u32;
        self.frames.extend(resolved.frames.iter().cloned());
        let end = self.frames.len() as u32;
        self.addresses.push(CodeAddress { frames: start..end, ..CodeAddress::in_modules(address, modules, spans) });
        self.native.push(resolved.native);
        // What is not Rust is left out of stacks unless it was asked for.
        if resolved.unknown && !resolved.native {
            self.unknown_addresses += 1;
        }
    }
}

/// The standard library comes with line numbers of its own, whatever the program was built with.
fn no_line_numbers(symbols: &Symbols) -> bool {
    let rust = symbols.addresses.iter().zip(&symbols.native).filter(|(_, native)| !**native);
    let frames =
        rust.flat_map(|(address, _)| &symbols.frames[address.frames.start as usize..address.frames.end as usize]);
    let mut rest = frames.filter(|frame| !crate::sources::is_std(&frame.file)).peekable();
    rest.peek().is_some() && rest.all(|frame| frame.line == 0)
}
