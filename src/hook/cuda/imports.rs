//! Memory of other processes and libraries that is known by its address here: opened as often as it is closed,
//! mapped from what is entered by its handle, or a block of another's pool.
#![expect(unsafe_code, reason = "results lie behind the caller's pointers")]

use std::ffi::c_int;
use std::sync::Mutex;

use super::attention::Reason;
use super::driver::SUCCESS;
use super::query;
use super::tell::{self, Told};
use super::words::{Class, Outcome, Pointer, Release, Stream, Whose};
use crate::record::lock::lock;
use crate::record::memory::{OwnMap, OwnVec, System, own_map, try_push};
use crate::record::{fork, ticks};

/// How often an address was opened; 0 for a part of something that is entered already.
type Opened = OwnMap<u64, u32>;

static OPENED: Mutex<Opened> = Mutex::new(own_map());
/// There are some: their frees and their contexts' ends must be seen.
static ANY: Reason = Reason::new();

fn with<T>(act: impl FnOnce(&mut Opened) -> T) -> T {
    let _no_fork = fork::no_fork();
    let mut opened = lock(&OPENED);
    let answer = act(&mut opened);
    ANY.set(!opened.is_empty());
    answer
}

/// `cuIpcOpenMemHandle`: what is to be done after it. What is open already is the same block.
pub(super) fn opened(out: *const Pointer) -> impl FnOnce(c_int) {
    after(out, |address| with(|opened| open(opened, address)))
}

/// `cuMemPoolImportPointer`: what is to be done after it. It is freed as any block of a pool is.
pub(super) fn imported(out: *const Pointer) -> impl FnOnce(c_int) {
    after(out, |_| true)
}

fn after(out: *const Pointer, is_new: impl FnOnce(u64) -> bool) -> impl FnOnce(c_int) {
    let began = ticks::now();
    move |result| {
        if result != SUCCESS || out.is_null() {
            return;
        }
        // SAFETY: the driver has written it.
        let address = unsafe { out.read() };
        if is_new(address) {
            let (class, stream, whose) = (Class::Imported, Stream::NONE, Whose::Streams);
            // Only the driver knows the size.
            let size = query::range_size(address).unwrap_or(0);
            let took = ticks::now().saturating_sub(began);
            tell::tell_alloc(&Outcome { result, class, address, size, stream, whose, took });
        }
    }
}

/// True if it was not open before.
fn open(opened: &mut Opened, address: u64) -> bool {
    if opened.try_reserve(1).is_err() {
        return true;
    }
    let times = opened.entry(address).or_insert(0);
    *times += 1;
    *times == 1
}

/// Gives how often it was open before.
fn close(opened: &mut Opened, address: u64) -> u32 {
    match opened.get_mut(&address) {
        None | Some(0) => 0,
        Some(1) => opened.remove(&address).unwrap_or(0),
        Some(times) => {
            *times -= 1;
            *times + 1
        }
    }
}

/// `cuIpcCloseMemHandle`: what is to be done after it.
pub(super) fn closed(address: Pointer) -> impl FnOnce(c_int) {
    let before = with(|opened| close(opened, address));
    let release = Release { class: Class::Imported, address, stream: Stream::NONE };
    let told = if before <= 1 { tell::tell_free(release) } else { Told::NOTHING };
    move |result| {
        if result != SUCCESS && before > 0 {
            with(|opened| open(opened, address));
        }
        tell::after_free(result, told);
    }
}

/// `cuExternalMemoryGetMappedBuffer`: what is to be done after it.
pub(super) fn mapped(out: *const Pointer) -> impl FnOnce(c_int) {
    move |result| {
        if result == SUCCESS && !out.is_null() {
            // SAFETY: the driver has written it.
            put_part(unsafe { out.read() });
        }
    }
}

pub(super) fn put_part(address: Pointer) {
    with(|opened| _ = opened.try_reserve(1).is_ok().then(|| opened.insert(address, 0)));
}

/// Is what is freed here a part of something that stays? Then it is forgotten.
pub(super) fn take_part(address: Pointer) -> bool {
    ANY.holds()
        && with(|opened| {
            let is_part = opened.get(&address) == Some(&0);
            is_part && opened.remove(&address).is_some()
        })
}

/// A context may have come to an end: forgets what it took along.
pub(super) fn context_ended() {
    if !ANY.holds() {
        return;
    }
    let mut gone = OwnVec::new_in(System);
    with(|opened| opened.keys().for_each(|address| _ = try_push(&mut gone, *address)));
    gone.retain(|address| query::is_gone(*address));
    with(|opened| gone.iter().for_each(|address| _ = opened.remove(address)));
}
