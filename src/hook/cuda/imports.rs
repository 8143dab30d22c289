//! Memory of other processes and libraries that is known by its address here: opened as often as it is closed,
//! or mapped from what is entered by its handle.
#![expect(unsafe_code, reason = "results lie behind the caller's pointers")]

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::driver::SUCCESS;
use super::events::{self, Class, Outcome, Release, Stream, Told, Whose};
use super::query;
use super::requests::Pointer;
use crate::record::memory::{OwnMap, own_map};
use crate::record::{fork, ticks};

/// How often an address was opened; 0 for a part of something that is entered already.
static OPENED: Mutex<OwnMap<u64, u32>> = Mutex::new(own_map());
/// As long as there are none, nothing is looked up.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn with<T>(act: impl FnOnce(&mut OwnMap<u64, u32>) -> T) -> T {
    let _no_fork = fork::numbering();
    // Nothing done under this lock panics.
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = act(&mut opened);
    COUNT.store(opened.len(), Ordering::Release);
    answer
}

/// `cuIpcOpenMemHandle`, `cuMemPoolImportPointer`: what is to be done after them.
pub(super) fn opened(out: *const Pointer) -> impl FnOnce(c_int) {
    let began = ticks::now();
    move |result| {
        if result != SUCCESS || out.is_null() {
            return;
        }
        // SAFETY: the driver has written it.
        let address = unsafe { out.read() };
        if with(|opened| open(opened, address)) {
            let (class, stream, whose) = (Class::Imported, Stream::NONE, Whose::Streams);
            // Only the driver knows the size.
            let size = query::range_size(address).unwrap_or(0);
            let took = ticks::now().saturating_sub(began);
            events::tell_alloc(&Outcome { result, class, address, size, stream, whose, took });
        }
    }
}

/// True if it was not open before.
fn open(opened: &mut OwnMap<u64, u32>, address: u64) -> bool {
    if opened.try_reserve(1).is_err() {
        return true;
    }
    let times = opened.entry(address).or_insert(0);
    *times += 1;
    *times == 1
}

/// `cuIpcCloseMemHandle`: what is to be done after it.
pub(super) fn closed(address: Pointer) -> impl FnOnce(c_int) {
    let is_last = with(|opened| match opened.get_mut(&address) {
        Some(times) if *times > 1 => {
            *times -= 1;
            false
        }
        _ => {
            opened.remove(&address);
            true
        }
    });
    let release = Release { class: Class::Imported, address, stream: Stream::NONE };
    let told = if is_last { events::tell_free(release) } else { Told::NOTHING };
    move |result| {
        if result != SUCCESS {
            with(|opened| open(opened, address));
        }
        events::after_free(result, told);
    }
}

/// `cuExternalMemoryGetMappedBuffer`: what is to be done after it.
pub(super) fn mapped(out: *const Pointer) -> impl FnOnce(c_int) {
    move |result| {
        if result == SUCCESS && !out.is_null() {
            // SAFETY: the driver has written it.
            let address = unsafe { out.read() };
            with(|opened| _ = opened.try_reserve(1).is_ok().then(|| opened.insert(address, 0)));
        }
    }
}

/// Is what is freed here a part of something that stays? Then it is forgotten.
pub(super) fn is_part(address: Pointer) -> bool {
    COUNT.load(Ordering::Acquire) > 0
        && with(|opened| {
            let is_part = opened.get(&address) == Some(&0);
            is_part && opened.remove(&address).is_some()
        })
}
