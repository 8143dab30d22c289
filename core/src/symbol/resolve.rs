//! Symbolication of one address with the debug information (DWARF) and the symbol table of its object's file.
//!
//! It uses `addr2line` directly. `backtrace::resolve` wraps the same library, but returns DWARF's bare function names
//! instead of the symbol table's qualified ones. It also cannot read a program file that was replaced, and works only
//! in the recording process.

use std::collections::HashMap;
use std::num::NonZeroU32;

use addr2line::Loader;

use super::demangle::demangled;
use super::files::{self, SymbolSources, path_of};
use crate::snapshot::{FRAMES_LEFT_OUT, Frame, LoadedObject, ObjectSpans, SymbolName};

/// The meaning of one address.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// The frames, innermost first, without those of memtrace's own hooks.
    pub frames: Vec<Frame>,
    /// True if the code is not Rust.
    pub native: bool,
    /// True if the address's object has no symbol for it.
    pub unknown: bool,
}

/// Resolves addresses one by one; opens each file once.
pub struct Resolver<'a> {
    objects: &'a [LoadedObject],
    spans: ObjectSpans,
    /// The number of objects that are still loaded in this process; these come first. Of the other objects, only the
    /// files are available.
    loaded: usize,
    /// Resolves an address outside all objects.
    elsewhere: fn(u64) -> Option<Resolved>,
    /// For each object, the index of the first object with the same file.
    files: Vec<usize>,
    /// The opened files, by the index of the first object that has them. The list is empty if they are unreadable.
    loaders: HashMap<usize, Vec<Loader>>,
    unreadable: Vec<String>,
    sources: SymbolSources,
}

impl<'a> Resolver<'a> {
    /// A resolver for this process, in which the first `loaded` objects are loaded. `elsewhere` resolves addresses outside all
    /// objects.
    pub fn new(objects: &'a [LoadedObject], loaded: usize, elsewhere: fn(u64) -> Option<Resolved>) -> Self {
        let (spans, files) = (ObjectSpans::of(objects), first_of_file(objects, loaded));
        let (loaders, unreadable, sources) = Default::default();
        Self { objects, loaded, spans, files, elsewhere, loaders, unreadable, sources }
    }

    /// A resolver for another process, of which only the files are available.
    pub fn of_files(objects: &'a [LoadedObject], sources: &SymbolSources) -> Self {
        Self { sources: sources.clone(), ..Self::new(objects, 0, |_| None) }
    }

    /// The address ranges of the objects.
    pub fn spans(&self) -> &ObjectSpans {
        &self.spans
    }

    /// The objects with unreadable files, and why.
    pub fn unreadable(self) -> Vec<String> {
        self.unreadable
    }

    /// Resolves an address.
    pub fn resolve(&mut self, address: u64) -> Resolved {
        if address == FRAMES_LEFT_OUT {
            let function = "... (frames left out: the stack is deeper than stack_depth)".to_owned();
            return Resolved { frames: vec![named(function)], native: false, unknown: false };
        }
        let index = self.spans.find(address);
        let Some((index, object)) = index.and_then(|index| Some((index, self.objects.get(index)?))) else {
            return (self.elsewhere)(address).unwrap_or_else(|| label(address, None));
        };
        // A return address is that of the instruction after the call, so the byte before it belongs to the call.
        let offset = address.wrapping_sub(object.base).wrapping_sub(1);
        let found = from_files(self.loaders(index, object), offset);
        found.unwrap_or_else(|| label(address, Some(object)))
    }

    fn loaders(&mut self, index: usize, object: &LoadedObject) -> &[Loader] {
        let is_loaded = index < self.loaded;
        let file = self.files.get(index).copied().unwrap_or(index);
        let opened =
            || if is_loaded { files::open_loaded(object, index == 0) } else { files::open(object, &self.sources) };
        let open = || {
            opened().unwrap_or_else(|why| {
                if !is_loaded || path_of(object).exists() {
                    let name = object.path.as_deref().unwrap_or("(an object without a name)");
                    self.unreadable.push(format!("{name}: {why}"));
                }
                Vec::new()
            })
        };
        self.loaders.entry(file).or_insert_with(open)
    }
}

/// For each object, the index of the first object with the same path and build-id, so that no file is read twice.
/// Objects that are still loaded are kept apart from the others.
fn first_of_file(objects: &[LoadedObject], loaded: usize) -> Vec<usize> {
    let mut first = HashMap::new();
    let file = |(index, object): (usize, &'_ LoadedObject)| {
        *first.entry((object.path.clone(), object.build_id.clone(), index < loaded)).or_insert(index)
    };
    objects.iter().enumerate().map(file).collect()
}

/// The symbol from the first file that has one, with the frames from the first file that has any.
fn from_files(loaders: &[Loader], offset: u64) -> Option<Resolved> {
    let symbol = loaders.iter().find_map(|loader| loader.find_symbol(offset));
    let mut frames =
        loaders.iter().map(|loader| frames_in(loader, offset)).find(|frames| !frames.is_empty()).unwrap_or_default();
    // The last frame is the function into which the others were inlined. The symbol table has its qualified name.
    match (frames.last_mut(), symbol) {
        (Some(physical), Some(symbol)) => physical.function = Some(demangled(symbol)),
        (None, Some(symbol)) => frames.push(named(demangled(symbol))),
        (None, None) => return None,
        (Some(_), None) => {}
    }
    if let [inlined @ .., _] = frames.as_mut_slice() {
        inlined.iter_mut().for_each(|frame| frame.inlined = true);
    }
    let native = !is_rust(symbol, &frames);
    Some(Resolved { frames: without_machinery(frames), native, unknown: false })
}

fn frames_in(loader: &Loader, offset: u64) -> Vec<Frame> {
    let mut frames = Vec::new();
    if let Ok(mut found) = loader.find_frames(offset) {
        while let Ok(Some(frame)) = found.next() {
            frames.push(to_frame(&frame));
        }
    }
    // A frame is empty if its name is in a shared file (see `ObjectFile::shared`) that was not found.
    frames.retain(|frame| *frame != Frame::default());
    frames
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

/// A frame with only a function.
fn named(function: String) -> Frame {
    Frame { function: Some(function), ..Frame::default() }
}

fn is_rust(symbol: Option<&str>, frames: &[Frame]) -> bool {
    symbol.is_some_and(|s| rustc_demangle::try_demangle(s).is_ok())
        || frames.iter().any(|f| f.file_or_empty().ends_with(".rs"))
}

/// The most characters of a file name in the label of an address without a function.
const LONGEST_NAME: usize = 128;

/// The label of an address without a function: its object's file and the offset in it, or the address itself.
pub(crate) fn label(address: u64, object: Option<&LoadedObject>) -> Resolved {
    let Some(object) = object else {
        return Resolved { frames: vec![named(format!("{address:#x}"))], native: false, unknown: true };
    };
    let name = object.path.as_deref().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    // A hostile capture may have a name of any length, which every address would repeat.
    let end = name.char_indices().nth(LONGEST_NAME).map_or(name.len(), |(end, _)| end);
    let file = name.get(..end).unwrap_or_default();
    let function = format!("{file}+{:#x}", address.wrapping_sub(object.base));
    let native = file.contains(".so");
    Resolved { frames: vec![named(function)], native, unknown: true }
}

/// Removes the frames between the caller's allocation and the recorder: all frames up to the outermost function of the
/// recorder, and the unwinder's frames after it. It does not look at the names of the frames before that function,
/// because the name of an inlined function has no crate, and its file may be anywhere.
pub fn without_machinery(mut frames: Vec<Frame>) -> Vec<Frame> {
    let own = frames.iter().rposition(is_recorder).map_or(0, |outermost| outermost + 1);
    let unwinder = frames.iter().skip(own).take_while(|frame| is_unwinder(frame)).count();
    frames.drain(..own + unwinder);
    frames
}

fn is_recorder(frame: &Frame) -> bool {
    const SHIMS: [&str; 5] = ["__rust_alloc", "__rust_realloc", "__rg_alloc", "__rg_realloc", "__rust_no_alloc_shim"];
    let name = SymbolName(frame.function_or_empty());
    SHIMS.iter().any(|shim| name.function().starts_with(shim))
        || matches!(name.crate_and_module(), Some(("memtrace", "hook" | "record")))
}

fn is_unwinder(frame: &Frame) -> bool {
    let package = SymbolName(frame.function_or_empty()).crate_and_module().map(|(package, _)| package);
    package == Some("backtrace") || frame.file_or_empty().contains("/backtrace-0.3.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(path: &str, build_id: u8, start: u64) -> LoadedObject {
        LoadedObject { path: Some(path.into()), build_id: vec![build_id], base: 0, range: start..start + 0x100 }
    }

    #[test]
    fn a_file_is_opened_once_however_often_it_is_named() {
        let objects = [object("/gone", 1, 0x100), object("/gone", 1, 0x200), object("/gone", 2, 0x300)];
        assert_eq!((first_of_file(&objects, 0), first_of_file(&objects, 1)), (vec![0, 0, 2], vec![0, 1, 2]));
        let mut resolver = Resolver::of_files(&objects, &SymbolSources::default());
        (0x100..0x400).step_by(0x10).for_each(|address| assert!(resolver.resolve(address).unknown));
        assert_eq!(resolver.unreadable().len(), 2);
    }

    /// The functions of the process that reads a capture are not those of the process that wrote it.
    #[test]
    fn an_address_outside_the_objects_of_another_process_has_no_name() {
        let own = a_file_is_opened_once_however_often_it_is_named as fn() as usize as u64 + 1;
        let function = |frames: Vec<Frame>| frames.into_iter().filter_map(|frame| frame.function).collect::<Vec<_>>();
        assert_eq!(
            function(Resolver::of_files(&[], &SymbolSources::default()).resolve(own).frames),
            [format!("{own:#x}")]
        );
    }

    /// As in a hook of a library that was built from sources at any path.
    #[test]
    fn inlined_functions_of_the_recorder_go_with_the_function_that_holds_them() {
        let frame = |function: &str, file: &str| Frame { file: Some(file.into()), ..named(function.into()) };
        let hook = [frame("notify", "/a/src/hook/cuda/notify.rs"), named("memtrace::hook::cuda::calls::alloc".into())];
        assert_eq!(without_machinery(hook.to_vec()), []);
        let user = [frame("push", "/rustc/x/library/alloc/src/vec/mod.rs"), frame("main", "/u/src/main.rs")];
        let shim = [frame("alloc", "/a/src/hook/heap.rs"), named("__rust_alloc".into())];
        assert_eq!(without_machinery([shim.to_vec(), user.to_vec()].concat()), user);
        assert_eq!(without_machinery(user.to_vec()), user);
    }

    #[test]
    fn every_address_repeats_a_name_of_any_length_in_part_only() {
        let objects = [object(&"é".repeat(10_000), 1, 0x100)];
        let frames = Resolver::of_files(&objects, &SymbolSources::default()).resolve(0x180).frames;
        assert_eq!(frames[0].function, Some(format!("{}+0x180", "é".repeat(LONGEST_NAME))));
    }
}
