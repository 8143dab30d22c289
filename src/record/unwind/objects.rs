//! Loaded objects over time. An object (program or library) may be unloaded, and another one loaded at its addresses
//! (ABA).
//!
//! The loader counts loads and unloads. When a stack with code of objects that may be unloaded is taken and these
//! counts have changed, all loaded objects are noted. Each is noted with the unload count at which it was first seen.
//! The highest of these counts among the objects of a stack is the stack's *unload mark*. It identifies the object
//! behind each address of the stack. In snapshots and captures, an object that came to the addresses of another one is
//! marked by its own number in the upper 16 bits of its addresses.
#![expect(unsafe_code, reason = "stat is a C function")]

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use memtrace_core::snapshot::LoadedObject;

use crate::elf;
use crate::errno::KeepErrno;
use crate::executable::executable;
use crate::record::memory::{OwnVec, System, try_copy, try_push};

/// (loads, unloads) so far.
type Counts = (u64, u64);

/// The mark of a stack whose loaded objects could not be noted.
pub(crate) const UNKNOWN_MARK: u64 = (1 << 32) - 1;

/// Threads wait at most [`PATIENCE`] for this lock: its holder may be waiting for the loader's lock, which they may
/// hold.
static NOTED: Mutex<Noted> = Mutex::new(Noted::new());
const PATIENCE: Duration = Duration::from_millis(5);

/// The counts when the objects were last noted.
static SEEN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

#[derive(Debug)]
struct Noted {
    /// Every object that was ever loaded, once each.
    identities: OwnVec<Identity>,
    here: OwnVec<Here>,
    gone: OwnVec<Presence>,
}

/// An object at particular addresses.
#[derive(Debug)]
struct Identity {
    path: OwnVec<u8>,
    build_id: OwnVec<u8>,
    base: u64,
    start: u64,
    end: u64,
    /// The object's file when the object was first seen. Used only for objects without a build-id.
    file: File,
}

/// Device, inode, and time of the last change in seconds and nanoseconds.
type File = [i64; 4];
const NO_FILE: File = [0; 4];

#[derive(Clone, Copy, Debug)]
struct Here {
    identity: usize,
    start: u64,
    end: u64,
    /// The unload count when the object was first seen.
    from: u64,
    seen: bool,
}

/// The interval in which an object was loaded that is not loaded any more.
#[derive(Clone, Copy, Debug)]
struct Presence {
    identity: usize,
    from: u64,
    /// The unload count when the object was first missed.
    to: u64,
}

/// The counts at the last query. Each stack with code that may be unloaded makes a query.
static NOW: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

pub(super) fn query_counts() -> Counts {
    let mut counts = (0, 0);
    elf::each_object(|info| {
        counts = counts_of(info);
        ControlFlow::Break(())
    });
    note_counts(counts);
    counts
}

pub(super) fn note_counts(counts: Counts) {
    set(&NOW, counts);
}

fn set(place: &[AtomicU64; 2], (adds, unloads): Counts) {
    place[0].store(adds, Relaxed);
    place[1].store(unloads, Relaxed);
}

fn get(place: &[AtomicU64; 2]) -> Counts {
    (place[0].load(Relaxed), place[1].load(Relaxed))
}

pub(super) fn counts_of(info: &libc::dl_phdr_info) -> Counts {
    (info.dlpi_adds, info.dlpi_subs)
}

/// The unload mark of a stack that was just taken and has code that may be unloaded. 0 if the stack needs no mark.
#[inline]
pub(crate) fn mark(addresses: &[u64]) -> u64 {
    let counts = get(&NOW);
    if counts.1 == 0 && counts == get(&SEEN) { 0 } else { looked_up(addresses, counts) }
}

#[cold]
#[inline(never)]
fn looked_up(addresses: &[u64], counts: Counts) -> u64 {
    let Some(mut noted) = locked(&NOTED, PATIENCE) else { return UNKNOWN_MARK };
    noted.catch_up(counts);
    let froms = addresses.iter().filter_map(|address| noted.first_seen(*address));
    froms.max().unwrap_or(0).min(UNKNOWN_MARK - 1)
}

/// The lock, unless others hold it for this long.
fn locked<T>(mutex: &Mutex<T>, patience: Duration) -> Option<MutexGuard<'_, T>> {
    let begun = Instant::now();
    loop {
        match mutex.try_lock() {
            Ok(locked) => return Some(locked),
            Err(_) if begun.elapsed() > patience => return None,
            Err(_) => std::thread::yield_now(),
        }
    }
}

impl Noted {
    const fn new() -> Self {
        Self { identities: OwnVec::new_in(System), here: OwnVec::new_in(System), gone: OwnVec::new_in(System) }
    }

    fn first_seen(&self, address: u64) -> Option<u64> {
        self.here.iter().find(|here| (here.start..here.end).contains(&address)).map(|here| here.from)
    }

    /// Notes the loaded objects, unless they were already noted at these counts.
    fn catch_up(&mut self, counts: Counts) {
        if counts == get(&SEEN) {
            return;
        }
        self.here.iter_mut().for_each(|here| here.seen = false);
        let mut counts = counts;
        elf::each_object(|info| {
            counts = counts_of(info);
            self.see(info);
            ControlFlow::Continue(())
        });
        self.drop_unseen(counts.1);
        set(&SEEN, counts);
    }

    fn drop_unseen(&mut self, unloads: u64) {
        let Self { here, gone, .. } = self;
        here.retain(|here| {
            // Without memory to note that it is gone, it counts as still loaded.
            here.seen || !try_push(gone, Presence { identity: here.identity, from: here.from, to: unloads })
        });
    }

    fn see(&mut self, info: &libc::dl_phdr_info) {
        let (base, range, path, id) = (info.dlpi_addr, elf::range(info), elf::path(info), elf::build_id_of(info));
        let (start, end, file) = (range.start, range.end, if id.is_empty() { file_of(path) } else { NO_FILE });
        let path = path.to_bytes();
        let Self { identities, here, .. } = self;
        let is_it = |known: &Identity| {
            (known.base, known.start, known.end, known.file) == (base, start, end, file)
                && (known.path.as_slice(), known.build_id.as_slice()) == (path, id)
        };
        let same = |here: &&mut Here| here.start == start && identities.get(here.identity).is_some_and(is_it);
        if let Some(here) = here.iter_mut().find(same) {
            here.seen = true;
            return;
        }
        let identity = identities.iter().position(is_it).unwrap_or(identities.len());
        if identity == identities.len() {
            let (Some(path), Some(build_id)) = (try_copy(path), try_copy(id)) else { return };
            if !try_push(identities, Identity { path, build_id, base, start, end, file }) {
                return;
            }
        }
        // Objects that the first look finds count as loaded from the start.
        let from = if get(&SEEN) == (0, 0) { 0 } else { info.dlpi_subs };
        try_push(here, Here { identity, start, end, from, seen: true });
    }
}

fn file_of(path: &CStr) -> File {
    let _errno = KeepErrno::new();
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: reads a C string and writes to `stat`.
    if path.is_empty() || unsafe { libc::stat(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return NO_FILE;
    }
    // SAFETY: `stat` succeeded.
    let stat = unsafe { stat.assume_init() };
    [stat.st_dev.cast_signed(), stat.st_ino.cast_signed(), stat.st_mtime, stat.st_mtime_nsec]
}

/// Position of the bits above all addresses of a process. They contain the number of an object that came to the
/// addresses of another one.
const TAG_SHIFT: u32 = 48;

/// The number for an unknown object.
const UNKNOWN: u64 = u16::MAX as u64;

/// Finds the loaded object of each address in a stack.
#[derive(Debug, Default)]
pub(crate) struct ObjectMap {
    /// Sorted by start address.
    modules: Vec<ObjectHistory>,
    /// Size of the largest object.
    longest: u64,
    any_gone: bool,
}

#[derive(Debug)]
struct ObjectHistory {
    module: LoadedObject,
    /// Number in the order in which the objects were first seen; 0 is the program.
    number: usize,
    /// `number`, or 0 if no earlier object had any of the same addresses.
    tag: u64,
    is_here: bool,
    /// The intervals in which the object was loaded, each from one unload count up to another.
    times: Vec<(u64, u64)>,
}

impl ObjectMap {
    /// The current state. Must not be called in a forked child, where the loader's lock may be held for ever.
    pub(crate) fn now() -> Self {
        let counts = query_counts();
        match locked(&NOTED, PATIENCE) {
            Some(mut noted) => {
                noted.catch_up(counts);
                Self::of(&noted)
            }
            None => Self::default(),
        }
    }

    fn of(noted: &Noted) -> Self {
        let known = |(number, identity): (usize, &Identity)| ObjectHistory::new(number, identity, &noted.identities);
        let mut modules: Vec<ObjectHistory> = noted.identities.iter().enumerate().map(known).collect();
        for Presence { identity, from, to } in noted.gone.iter().copied() {
            if let Some(module) = modules.get_mut(identity) {
                module.times.push((from, to));
            }
        }
        for Here { identity, from, .. } in noted.here.iter().copied() {
            if let Some(module) = modules.get_mut(identity) {
                module.times.push((from, u64::MAX));
                module.is_here = true;
            }
        }
        modules.sort_unstable_by_key(|known| (known.start(), known.number));
        let longest = noted.identities.iter().map(|identity| identity.end.saturating_sub(identity.start)).max();
        Self { modules, longest: longest.unwrap_or(0), any_gone: !noted.gone.is_empty() }
    }

    /// An address of a stack with this mark, tagged so that it is unique to its object.
    pub(crate) fn address(&self, address: u64, mark: u64) -> u64 {
        if !self.any_gone {
            return address;
        }
        let tag = match (self.holder(address, mark), self.holders(address).count()) {
            (Some(known), _) => known.tag,
            (None, 0) => 0,
            (None, 1) if mark == UNKNOWN_MARK => {
                let only = self.holders(address).find(|known| known.is_lasting());
                only.map_or(UNKNOWN, |known| known.tag)
            }
            // Code outside all objects of that time, such as a JIT compiler's.
            (None, _) => UNKNOWN,
        };
        address | tag << TAG_SHIFT
    }

    /// The object at this address when a stack with this mark was taken.
    fn holder(&self, address: u64, mark: u64) -> Option<&ObjectHistory> {
        let from_of = |known: &ObjectHistory| {
            let before = known.times.partition_point(|(from, _)| *from <= mark);
            let (from, to) = *known.times.get(before.checked_sub(1)?)?;
            (mark < to).then_some(from)
        };
        if mark == UNKNOWN_MARK {
            return None;
        }
        let then = self.holders(address).filter_map(|known| Some((from_of(known)?, known)));
        then.max_by_key(|(from, _)| *from).map(|(_, known)| known)
    }

    fn holders(&self, address: u64) -> impl Iterator<Item = &ObjectHistory> {
        let after = self.modules.partition_point(|known| known.start() <= address);
        let near = self.modules.get(..after).unwrap_or_default().iter().rev();
        let near = near.take_while(move |known| address - known.start() < self.longest);
        near.filter(move |known| address < known.end())
    }

    /// The loaded objects, then those that are gone, with tagged addresses. Also returns how many are loaded. `loaded`
    /// is called if nothing is known.
    pub(crate) fn all(&self, loaded: impl FnOnce() -> Vec<LoadedObject>) -> (Vec<LoadedObject>, usize) {
        let mut known: Vec<&ObjectHistory> = self.modules.iter().collect();
        if known.is_empty() {
            let loaded = loaded();
            let count = loaded.len();
            return (loaded, count);
        }
        known.sort_unstable_by_key(|known| (!known.is_here, known.number));
        let here = known.iter().filter(|known| known.is_here).count();
        (known.into_iter().map(ObjectHistory::tagged).collect(), here)
    }
}

impl ObjectHistory {
    fn new(number: usize, identity: &Identity, all: &[Identity]) -> Self {
        let mut before = all.iter().take(number);
        let is_first = before.all(|other| other.end <= identity.start || identity.end <= other.start);
        let mut path = Some(String::from_utf8_lossy(&identity.path).into_owned()).filter(|path| !path.is_empty());
        if number == 0 && path.is_none() {
            path = executable().map(|path| path.display().to_string());
        }
        let (build_id, range) = (identity.build_id.to_vec(), identity.start..identity.end);
        Self {
            module: LoadedObject { path, build_id, base: identity.base, range },
            number,
            tag: if is_first { 0 } else { (number as u64).min(UNKNOWN) },
            is_here: false,
            times: Vec::new(),
        }
    }

    fn start(&self) -> u64 {
        self.module.range.start
    }

    fn end(&self) -> u64 {
        self.module.range.end
    }

    /// Whether the object was loaded all the time.
    fn is_lasting(&self) -> bool {
        self.is_here && self.times.len() == 1
    }

    fn tagged(&self) -> LoadedObject {
        let tag = self.tag << TAG_SHIFT;
        let LoadedObject { base, range, .. } = &self.module;
        LoadedObject { base: base.wrapping_add(tag), range: range.start | tag..range.end | tag, ..self.module.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAYS: u64 = u64::MAX;

    type Times<'a> = &'a [(u64, u64)];

    /// Each object with the intervals in which it was loaded.
    fn known(list: &[(&str, std::ops::Range<u64>, Times<'_>)]) -> ObjectMap {
        let mut noted = Noted::new();
        for (identity, (name, range, times)) in list.iter().enumerate() {
            let name = || try_copy(name.as_bytes()).unwrap();
            let (start, end) = (range.start, range.end);
            let (path, build_id, file) = (name(), name(), NO_FILE);
            noted.identities.push(Identity { path, build_id, base: start, start, end, file });
            for &(from, to) in *times {
                match to {
                    STAYS => noted.here.push(Here { identity, start, end, from, seen: true }),
                    _ => noted.gone.push(Presence { identity, from, to }),
                }
            }
        }
        ObjectMap::of(&noted)
    }

    fn name_at(known: &ObjectMap, address: u64, mark: u64) -> Option<String> {
        let (modules, _) = known.all(|| unreachable!());
        let address = known.address(address, mark);
        let module = modules.iter().find(|module| module.range.contains(&address))?;
        assert_eq!(address - module.base, 0x10, "in the file");
        module.path.clone()
    }

    #[test]
    fn an_address_is_of_the_module_that_was_there_then() {
        let list: [(&str, _, Times<'_>); 4] = [
            ("program", 0x1000..0x2000, &[(0, STAYS)]),
            ("alpha", 0x5000..0x6000, &[(0, 2), (6, 7)]),
            ("beta", 0x5000..0x5800, &[(2, 3)]),
            ("gamma", 0x5000..0x6000, &[(4, 6), (7, STAYS)]),
        ];
        let known = known(&list);
        let at = |address, mark| name_at(&known, address, mark);
        assert_eq!([at(0x1010, 0), at(0x1010, 9)].map(|name| name.unwrap()), ["program", "program"]);
        let names = [0, 1, 2, 4, 5, 6, 7].map(|mark| at(0x5010, mark).unwrap());
        assert_eq!(names, ["alpha", "alpha", "beta", "gamma", "gamma", "alpha", "gamma"]);
        // At unload count 3 nothing was loaded there. Some stacks have an unknown mark.
        assert_eq!((at(0x5010, 3), at(0x5010, UNKNOWN_MARK), at(0x9010, 0)), (None, None, None));
        assert_eq!((known.address(0x9010, 0), at(0x1010, UNKNOWN_MARK).as_deref()), (0x9010, Some("program")));
        let (modules, loaded) = known.all(|| unreachable!());
        let paths: Vec<&str> = modules.iter().filter_map(|module| module.path.as_deref()).collect();
        assert_eq!((paths, loaded), (vec!["program", "gamma", "alpha", "beta"], 2));
    }

    #[test]
    fn a_lock_is_waited_for_but_not_for_ever() {
        let mutex = &Mutex::new(());
        std::thread::scope(|threads| {
            let held = mutex.lock().unwrap();
            assert!(threads.spawn(|| locked(mutex, Duration::ZERO).is_none()).join().unwrap());
            let patient = threads.spawn(|| locked(mutex, Duration::from_secs(600)).is_some());
            std::thread::sleep(Duration::from_millis(50));
            drop(held);
            assert!(patient.join().unwrap());
        });
    }

    #[test]
    fn where_no_module_is_gone_addresses_are_what_they_are() {
        let known = known(&[("program", 0x1000..0x2000, &[(0, STAYS)])]);
        assert_eq!((known.address(0x1010, 7), known.address(0x9010, 0)), (0x1010, 0x9010));
        let asked = vec![LoadedObject { path: Some("asked".into()), build_id: Vec::new(), base: 0, range: 0..1 }];
        assert_eq!(ObjectMap::default().all(|| asked.clone()), (asked, 1));
    }

    #[test]
    fn this_program_is_noted_with_its_code() {
        let here = this_program_is_noted_with_its_code as fn() as usize as u64;
        let (modules, loaded) = ObjectMap::now().all(|| unreachable!());
        let home = modules[..loaded].iter().position(|module| module.range.contains(&here));
        let program = std::env::current_exe().unwrap().display().to_string();
        assert_eq!((home, &modules[0].path), (Some(0), &Some(program)));
        query_counts();
        assert_eq!(mark(&[here]), 0);
    }
}
