//! Memory without an address of its own: physical memory that is mapped by hand, arrays, memory of other
//! libraries. It gets addresses that are made up, from 2⁵² on, where no device has any.
#![expect(unsafe_code, reason = "results lie behind the caller's pointers")]

use std::ffi::c_int;
use std::sync::Mutex;

use super::driver::SUCCESS;
use super::tell::{self, Told};
use super::words::{Class, Outcome, Release, Stream, Whose};
use crate::record::lock::lock;
use crate::record::memory::{OwnMap, OwnVec, System, own_map, try_push};
use crate::record::{fork, ticks};
use crate::snapshot::MADE_UP;

/// What a handle stands for: each kind has handles of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Physical,
    Array,
    External,
}

type Key = (Kind, u64);

#[derive(Clone, Copy, Debug)]
struct Entry {
    class: Class,
    /// The address that was made up; 0 for what is entered where it is mapped.
    address: u64,
    /// Handles to it.
    references: u32,
    mappings: u32,
    /// Context that takes it along.
    context: usize,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    size: u64,
    key: Key,
}

struct Tables {
    entries: OwnMap<Key, Entry>,
    /// By address.
    mappings: OwnMap<u64, Mapping>,
    next_address: u64,
}

static TABLES: Mutex<Tables> = Mutex::new(Tables { entries: own_map(), mappings: own_map(), next_address: MADE_UP });

/// Made-up addresses are multiples of this, and never neighbours.
const STEP: u64 = 1 << 20;

fn with<T>(act: impl FnOnce(&mut Tables) -> T) -> T {
    let _no_fork = fork::no_fork();
    act(&mut lock(&TABLES))
}

/// Something that was made, as far as is known before the call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) kind: Kind,
    pub(super) class: Class,
    /// Where the call leaves the handle.
    pub(super) out: *const u64,
    pub(super) size: u64,
    pub(super) whose: Whose,
    pub(super) context: usize,
}

/// What is to be done after a call that makes something.
pub(super) fn made(made: Made) -> impl FnOnce(c_int) {
    let began = ticks::now();
    move |result| {
        let Made { kind, class, out, size, whose, context } = made;
        let took = ticks::now().saturating_sub(began);
        let outcome = Outcome { result, class, address: 0, size, stream: Stream::NONE, whose, took };
        match result {
            SUCCESS if out.is_null() || size == 0 => {}
            SUCCESS => {
                // SAFETY: the driver has written it.
                let key = (kind, unsafe { out.read() });
                let address = with(|tables| tables.make(key, class, size, context));
                tell::tell_alloc(&Outcome { address, ..outcome });
            }
            _ => tell::tell_refusal(&outcome),
        }
    }
}

impl Tables {
    fn make(&mut self, key: Key, class: Class, size: u64, context: usize) -> u64 {
        let address = self.next_address;
        let length = size.checked_next_multiple_of(STEP).unwrap_or(u64::MAX);
        self.next_address = address.saturating_add(length).saturating_add(STEP);
        self.insert(key, Entry { class, address, references: 1, mappings: 0, context });
        address
    }

    fn insert(&mut self, key: Key, entry: Entry) {
        if self.entries.try_reserve(1).is_ok() {
            self.entries.insert(key, entry);
        }
    }

    /// One handle or mapping less. What is left without any is taken out.
    fn less(&mut self, key: Key, count: Count) -> Less {
        let Some(entry) = self.entries.get_mut(&key) else { return Less::Nothing };
        let before = *entry;
        let Some(less) = count(entry).checked_sub(1) else { return Less::Nothing };
        *count(entry) = less;
        if entry.references > 0 || entry.mappings > 0 {
            return Less::Counted;
        }
        self.entries.remove(&key);
        Less::Taken(before)
    }

    /// The call was refused: what it did here is undone.
    fn put_back(&mut self, key: Key, less: Less, count: Count) {
        match (less, self.entries.get_mut(&key)) {
            (Less::Taken(entry), _) => self.insert(key, entry),
            (Less::Counted, Some(entry)) => *count(entry) += 1,
            _ => {}
        }
    }
}

/// Which of an entry's counts.
type Count = fn(&mut Entry) -> &mut u32;

/// What a call that gives back did here.
#[derive(Clone, Copy, Debug)]
enum Less {
    /// It is of nothing that is known, or the driver will refuse it.
    Nothing,
    Counted,
    Taken(Entry),
}

impl Less {
    fn taken(self) -> Option<Entry> {
        if let Self::Taken(entry) = self { Some(entry) } else { None }
    }
}

/// Takes what has an address of its own out of the accounts.
fn tell_gone(entry: Entry) -> Told {
    let Entry { class, address, .. } = entry;
    if address == 0 {
        return Told::NOTHING;
    }
    tell::tell_free(Release { class, address, stream: Stream::NONE })
}

/// A handle is given back: what is to be done after the call.
pub(super) fn released(kind: Kind, handle: u64) -> impl FnOnce(c_int) {
    let (key, references): (_, Count) = ((kind, handle), |entry| &mut entry.references);
    let less = with(|tables| tables.less(key, references));
    let told = less.taken().map(tell_gone);
    move |result| {
        if result != SUCCESS {
            with(|tables| tables.put_back(key, less, references));
        }
        told.into_iter().for_each(|told| tell::after_free(result, told));
    }
}

/// One more handle to physical memory, or one to memory that was made elsewhere: what is to be done after
/// the call.
pub(super) fn retained(out: *const u64) -> impl FnOnce(c_int) {
    move |result| {
        if result != SUCCESS || out.is_null() {
            return;
        }
        // SAFETY: the driver has written it.
        let key = (Kind::Physical, unsafe { out.read() });
        with(|tables| match tables.entries.get_mut(&key) {
            Some(entry) => entry.references += 1,
            // How large it is shows when it is mapped.
            None => {
                tables.insert(key, Entry { class: Class::Imported, address: 0, references: 1, mappings: 0, context: 0 })
            }
        });
    }
}

/// `cuMemMap`: what is to be done after it.
pub(super) fn mapped(address: u64, size: u64, handle: u64) -> impl FnOnce(c_int) {
    let key = (Kind::Physical, handle);
    move |result| {
        if result != SUCCESS {
            return;
        }
        let entry = with(|tables| {
            let entry = tables.entries.get_mut(&key)?;
            entry.mappings += 1;
            let entry = *entry;
            if tables.mappings.try_reserve(1).is_ok() {
                tables.mappings.insert(address, Mapping { size, key });
            }
            Some(entry)
        });
        if let Some(Entry { class, address: 0, .. }) = entry {
            let (stream, whose) = (Stream::NONE, Whose::Streams);
            tell::tell_alloc(&Outcome { result, class, address, size, stream, whose, took: 0 });
        }
    }
}

/// A mapping that is being taken away.
#[derive(Clone, Copy)]
struct Unmapped {
    address: u64,
    mapping: Mapping,
    class: Class,
    less: Less,
}

impl Unmapped {
    const MAPPINGS: Count = |entry| &mut entry.mappings;

    /// What goes with it: memory from elsewhere was entered where it was mapped.
    fn told(self) -> Told {
        let address = if self.class == Class::Imported { Some(self.address) } else { None };
        let gone = address.or(self.less.taken().map(|entry| entry.address));
        let release = |address| Release { class: self.class, address, stream: Stream::NONE };
        gone.map_or(Told::NOTHING, |address| tell::tell_free(release(address)))
    }

    fn put_back(self, tables: &mut Tables) {
        tables.put_back(self.mapping.key, self.less, Self::MAPPINGS);
        if tables.mappings.try_reserve(1).is_ok() {
            tables.mappings.insert(self.address, self.mapping);
        }
    }
}

impl Tables {
    /// Takes the mappings within a range away.
    fn unmap(&mut self, start: u64, end: u64) -> OwnVec<Unmapped> {
        let mut all = OwnVec::new_in(System);
        let within = |(address, mapping): (&u64, &Mapping)| {
            (start <= *address && address.saturating_add(mapping.size) <= end).then_some((*address, *mapping))
        };
        let found = self.mappings.iter().filter_map(within);
        found.for_each(|found| _ = try_push(&mut all, found));
        let mut unmapped = OwnVec::new_in(System);
        for (address, mapping) in all {
            self.mappings.remove(&address);
            let Some(class) = self.entries.get(&mapping.key).map(|entry| entry.class) else { continue };
            let less = self.less(mapping.key, Unmapped::MAPPINGS);
            try_push(&mut unmapped, Unmapped { address, mapping, class, less });
        }
        unmapped
    }

    /// Takes out what a context has.
    fn end_of(&mut self, context: usize) -> OwnVec<Entry> {
        let mut all = OwnVec::new_in(System);
        if context != 0 {
            self.entries.retain(|_, entry| entry.context != context || !try_push(&mut all, *entry));
        }
        all
    }
}

/// `cuMemUnmap`: what is to be done after it. It takes whole mappings.
pub(super) fn unmapped(address: u64, size: u64) -> impl FnOnce(c_int) {
    let mut all = OwnVec::new_in(System);
    for unmapped in with(|tables| tables.unmap(address, address.saturating_add(size))) {
        try_push(&mut all, (unmapped, unmapped.told()));
    }
    move |result| {
        // What was taken first goes back last, so that all counts are as they were.
        for (unmapped, told) in all.into_iter().rev() {
            if result != SUCCESS {
                with(|tables| unmapped.put_back(tables));
            }
            tell::after_free(result, told);
        }
    }
}

/// A context came to an end: so did its arrays.
pub(super) fn ended(context: usize) {
    for entry in with(|tables| tables.end_of(context)) {
        let told = tell_gone(entry);
        tell::after_free(SUCCESS, told);
    }
}

/// Is there anything that goes with a context?
pub(super) fn any_of_contexts() -> bool {
    with(|tables| tables.entries.values().any(|entry| entry.context != 0))
}
