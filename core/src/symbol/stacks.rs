//! Filters stacks: Rust calls stay, and the call that entered an allocating library.

use super::Symbols;
use crate::attribute::{is_interpreter, is_memtraces, name_of_library};
use crate::snapshot::{CodeAddress, FRAMES_LEFT_OUT, Frame, Health, LoadedObject, Rules, Settings, StackKind, Stacks};

/// Builds the table of stacks. Native calls are left out, unless the settings keep them or the stack has no Rust call
/// of the program.
pub fn with_symbols(
    stacks: &[Vec<u32>],
    symbols: Symbols,
    settings: &Settings,
    health: &mut Health,
) -> (Stacks, Vec<LoadedObject>) {
    let Symbols { addresses, mut frames, objects, kinds, .. } = symbols;
    health.no_line_numbers = symbols.no_line_numbers;
    health.unknown_addresses = symbols.unknown_addresses;
    health.unreadable_objects = symbols.unreadable_objects;
    forget_lines_of_interpreters(&addresses, &mut frames, &objects);
    let all = Stacks { starts: Vec::new(), calls: Vec::new(), addresses, frames };
    let is_native = |call: &u32| {
        let index = *call as usize;
        let is_omission = all.addresses.get(index).is_some_and(|address| address.address == FRAMES_LEFT_OUT);
        !is_omission && kinds.get(index).is_some_and(|kind| kind.native)
    };
    let rules = &settings.rules;
    let is_preloads = |call: &u32| is_of_preload_library(&all, &objects, *call);
    let is_programs = |call: &u32| {
        !is_native(call)
            && !is_preloads(call)
            && all.addresses.get(*call as usize).is_some_and(|a| !is_memtraces(rules, all.frames_at(a)))
    };
    let (mut starts, mut calls) = (vec![0], Vec::new());
    for stack in stacks {
        starts.push(calls.len() as u32);
        let entry = entry_of_library(&settings.rules, &all, &objects, stack, is_native);
        let keeps_all = settings.stacks == StackKind::All || !stack.iter().any(is_programs);
        let kept =
            |(at, call): &(usize, &u32)| !is_preloads(call) && (keeps_all || !is_native(call) || Some(*at) == entry);
        calls.extend(stack.iter().enumerate().filter(kept).map(|(_, call)| *call));
    }
    (Stacks { starts, calls, ..all }, objects)
}

/// Removes the files and lines of interpreters, so that they are not taken for the program's lines.
fn forget_lines_of_interpreters(addresses: &[CodeAddress], frames: &mut [Frame], objects: &[LoadedObject]) {
    let path = |address: &CodeAddress| objects.get(address.object? as usize)?.path.as_deref();
    for address in addresses.iter().filter(|address| path(address).is_some_and(is_interpreter)) {
        let own = frames.get_mut(address.frames.start as usize..address.frames.end as usize);
        own.into_iter().flatten().for_each(|frame| (frame.file, frame.line) = (None, None));
    }
}

/// True for memtrace's own functions that intercept C's allocator. They are recognized by the name of the library,
/// because they have no Rust names, and no files if the library is stripped.
fn is_of_preload_library(all: &Stacks, objects: &[LoadedObject], call: u32) -> bool {
    let address = all.addresses.get(call as usize);
    let path = address.and_then(|address| objects.get(address.object? as usize)?.path.as_deref());
    path.and_then(|path| path.rsplit('/').next()).is_some_and(|name| name.starts_with("libmemtrace_preload."))
}

/// If a library allocated: the position of the call that entered the library. It is the outermost call of a library
/// among the native calls between memtrace's own calls and the next Rust call. The stack keeps this call, although it
/// is native.
fn entry_of_library(
    rules: &Rules,
    all: &Stacks,
    objects: &[LoadedObject],
    stack: &[u32],
    is_native: impl Fn(&u32) -> bool,
) -> Option<usize> {
    let address = |call: &u32| all.addresses.get(*call as usize);
    let is_own = |call: &u32| {
        is_of_preload_library(all, objects, *call)
            || !is_native(call) && address(call).is_some_and(|a| is_memtraces(rules, all.frames_at(a)))
    };
    let first = stack.iter().position(|call| !is_own(call))?;
    let native = stack.get(first..)?.iter().take_while(|call| is_native(call)).enumerate();
    let is_library = |call: &u32| {
        let path = address(call).and_then(|address| objects.get(address.object? as usize)?.path.as_deref());
        path.is_some_and(|path| name_of_library(rules, path).is_some())
    };
    native.filter(|(_, call)| is_library(call)).last().map(|(at, _)| first + at)
}
