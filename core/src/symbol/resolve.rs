//! One address to its frames, by the debug information and symbol table of the file it comes from.

use std::collections::HashMap;
use std::num::NonZeroU32;

use addr2line::Loader;

use crate::snapshot::{FRAMES_LEFT_OUT, Frame, LoadedObject, ObjectSpans, SymbolName};

/// What one address means.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// Innermost first; without the frames of memtrace's own hooks.
    pub frames: Vec<Frame>,
    /// Not Rust code.
    pub native: bool,
    /// Its module says nothing of it.
    pub unknown: bool,
}

/// Resolves addresses, one after another; files are opened once.
pub struct Resolver<'a> {
    modules: &'a [LoadedObject],
    spans: ObjectSpans,
    /// So many of them, from the first on, are loaded; of the others only the files are left.
    loaded: usize,
    /// What is known of an address in no module.
    elsewhere: fn(u64) -> Option<Resolved>,
    /// For each module, the first one of the same file.
    files: Vec<usize>,
    /// Opened files by their first module; `None` for one that cannot be read.
    loaders: HashMap<usize, Option<Loader>>,
    /// Modules that could not be read, and why.
    unreadable: Vec<String>,
}

impl<'a> Resolver<'a> {
    /// For addresses of this process, of whose modules so many are loaded, the first ones. What lies in none of them is asked
    /// for elsewhere.
    pub fn new(modules: &'a [LoadedObject], loaded: usize, elsewhere: fn(u64) -> Option<Resolved>) -> Self {
        let (spans, files) = (ObjectSpans::of(modules), first_of_file(modules, loaded));
        Self { modules, loaded, spans, files, elsewhere, loaders: HashMap::new(), unreadable: Vec::new() }
    }

    /// For addresses of another process, of which only the files are left.
    pub fn of_files(modules: &'a [LoadedObject]) -> Self {
        Self::new(modules, 0, |_| None)
    }

    /// Where the modules lie.
    pub fn spans(&self) -> &ObjectSpans {
        &self.spans
    }

    /// Modules whose files could not be read, and why.
    pub fn unreadable(self) -> Vec<String> {
        self.unreadable
    }

    /// What an address means.
    pub fn resolve(&mut self, address: u64) -> Resolved {
        if address == FRAMES_LEFT_OUT {
            let function = "... (frames left out: the stack is deeper than stack_depth)".to_owned();
            return Resolved { frames: vec![named(function)], native: false, unknown: false };
        }
        let index = self.spans.find(address);
        let Some((index, module)) = index.and_then(|index| Some((index, self.modules.get(index)?))) else {
            return (self.elsewhere)(address).unwrap_or_else(|| nowhere(address));
        };
        let (is_loaded, unreadable) = (index < self.loaded, &mut self.unreadable);
        let file = self.files.get(index).copied().unwrap_or(index);
        let loader = self.loaders.entry(file).or_insert_with(|| {
            let opened = if is_loaded { loaded(module, index) } else { super::files::open(module) };
            let has_file = !is_loaded || module.path.as_ref().is_some_and(|path| std::path::Path::new(path).exists());
            opened
                .map_err(|why| {
                    if has_file {
                        unreadable.push(format!("{}: {why}", name_of(module)))
                    }
                })
                .ok()
        });
        let Some(loader) = loader else { return unknown(address, module) };
        // A return address: the call is just before it.
        let offset = address.wrapping_sub(module.base).wrapping_sub(1);
        from_file(loader, offset).unwrap_or_else(|| unknown(address, module))
    }
}

/// For each module, the first one with its path and build-id: the same file need not be read twice. What is loaded is
/// read without asking for the build-id.
fn first_of_file(modules: &[LoadedObject], loaded: usize) -> Vec<usize> {
    let mut first: HashMap<(Option<&str>, &[u8], bool), usize> = HashMap::new();
    let numbered = modules.iter().enumerate();
    numbered
        .map(|(index, module)| {
            *first.entry((module.path.as_deref(), &module.build_id, index < loaded)).or_insert(index)
        })
        .collect()
}

/// The program's own file may have been replaced or deleted since it started; the kernel still has it. Those of libraries
/// are looked at, where they say what they are; what has no file (the kernel's own library) has no names, which is nothing
/// to speak of.
fn loaded(module: &LoadedObject, index: usize) -> Result<Loader, String> {
    let running = if cfg!(target_os = "linux") && index == 0 { Loader::new("/proc/self/exe").ok() } else { None };
    match running {
        Some(program) => Ok(program),
        None if module.build_id.is_empty() => {
            Loader::new(module.path.as_deref().unwrap_or_default()).map_err(|error| error.to_string())
        }
        None => super::files::open(module),
    }
}

fn name_of(module: &LoadedObject) -> &str {
    module.path.as_deref().unwrap_or("(a module without a name)")
}

fn from_file(loader: &Loader, offset: u64) -> Option<Resolved> {
    let symbol = loader.find_symbol(offset);
    let mut frames = Vec::new();
    if let Ok(mut found) = loader.find_frames(offset) {
        while let Ok(Some(frame)) = found.next() {
            frames.push(to_frame(&frame));
        }
    }
    // The last frame is the physical function: the symbol table knows it with its path.
    match (frames.last_mut(), symbol) {
        (Some(physical), Some(symbol)) => physical.function = Some(demangled(symbol)),
        (None, Some(symbol)) => frames.push(named(demangled(symbol))),
        (None, None) => return None,
        (Some(_), None) => {}
    }
    let length = frames.len();
    frames.iter_mut().take(length.saturating_sub(1)).for_each(|frame| frame.inlined = true);
    let native = !is_rust(symbol, &frames);
    Some(Resolved { frames: without_machinery(frames), native, unknown: false })
}

fn to_frame<R: addr2line::gimli::Reader>(frame: &addr2line::Frame<'_, R>) -> Frame {
    let name = frame.function.as_ref().and_then(|f| f.raw_name().ok().map(|n| demangled(&n)));
    let location = frame.location.as_ref();
    Frame {
        function: name.filter(|name| !name.is_empty()),
        file: location.and_then(|l| l.file).filter(|file| !file.is_empty()).map(str::to_owned),
        line: location.and_then(|l| l.line).and_then(NonZeroU32::new),
        inlined: false,
    }
}

/// A frame of which only the function is known.
fn named(function: String) -> Frame {
    Frame { function: Some(function), ..Frame::default() }
}

fn demangled(symbol: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(symbol))
}

fn is_rust(symbol: Option<&str>, frames: &[Frame]) -> bool {
    symbol.is_some_and(|s| rustc_demangle::try_demangle(s).is_ok())
        || frames.iter().any(|f| f.file_or_empty().ends_with(".rs"))
}

/// Characters of a file's name, as far as an address without a function shows it.
const LONGEST_NAME: usize = 128;

fn unknown(address: u64, module: &LoadedObject) -> Resolved {
    let name = module.path.as_deref().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    // A file that was read may say anything, and every address repeats it.
    let end = name.char_indices().nth(LONGEST_NAME).map_or(name.len(), |(end, _)| end);
    let file = name.get(..end).unwrap_or_default();
    let function = format!("{file}+{:#x}", address.wrapping_sub(module.base));
    let native = file.contains(".so");
    Resolved { frames: vec![named(function)], native, unknown: true }
}

/// An address outside of all modules.
fn nowhere(address: u64) -> Resolved {
    Resolved { frames: vec![named(format!("{address:#x}"))], native: false, unknown: true }
}

/// Frames without those through which a request gets from the caller to the recorder.
pub fn without_machinery(mut frames: Vec<Frame>) -> Vec<Frame> {
    let own = frames.iter().take_while(|frame| is_machinery(frame)).count();
    frames.drain(..own);
    frames
}

/// How a request gets from the caller to the recorder: of no interest to anybody.
fn is_machinery(frame: &Frame) -> bool {
    const SHIMS: [&str; 5] = ["__rust_alloc", "__rust_realloc", "__rg_alloc", "__rg_realloc", "__rust_no_alloc_shim"];
    let name = SymbolName(frame.function_or_empty());
    let shim = SHIMS.iter().any(|shim| name.function().starts_with(shim));
    let by_name = matches!(name.crate_and_module(), Some(("memtrace", "hook" | "record") | ("backtrace", _)));
    shim || by_name || is_own_file(frame.file_or_empty()) || frame.file_or_empty().contains("/backtrace-0.3.")
}

fn is_own_file(file: &str) -> bool {
    let Some(rest) = crate::sources::own(file) else { return false };
    rest.starts_with("hook/") || rest.starts_with("record/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str, build_id: u8, start: u64) -> LoadedObject {
        LoadedObject { path: Some(path.into()), build_id: vec![build_id], base: 0, range: start..start + 0x100 }
    }

    #[test]
    fn a_file_is_opened_once_however_often_it_is_named() {
        let modules = [module("/gone", 1, 0x100), module("/gone", 1, 0x200), module("/gone", 2, 0x300)];
        assert_eq!((first_of_file(&modules, 0), first_of_file(&modules, 1)), (vec![0, 0, 2], vec![0, 1, 2]));
        let mut resolver = Resolver::of_files(&modules);
        (0x100..0x400).step_by(0x10).for_each(|address| assert!(resolver.resolve(address).unknown));
        assert_eq!(resolver.unreadable().len(), 2);
    }

    /// The functions of the process that reads a capture are not those of the one that wrote it.
    #[test]
    fn an_address_outside_the_modules_of_another_process_has_no_name() {
        let own = a_file_is_opened_once_however_often_it_is_named as fn() as usize as u64 + 1;
        let function = |frames: Vec<Frame>| frames.into_iter().filter_map(|frame| frame.function).collect::<Vec<_>>();
        assert_eq!(function(Resolver::of_files(&[]).resolve(own).frames), [format!("{own:#x}")]);
    }

    #[test]
    fn every_address_repeats_a_name_of_any_length_in_part_only() {
        let modules = [module(&"é".repeat(10_000), 1, 0x100)];
        let frames = Resolver::of_files(&modules).resolve(0x180).frames;
        assert_eq!(frames[0].function, Some(format!("{}+0x180", "é".repeat(LONGEST_NAME))));
    }
}
