//! Which modules were loaded when: a module may be unloaded and another one come to its addresses.
//!
//! The loader counts how many modules were loaded and unloaded so far. Whenever a stack with code of modules that may
//! go is taken, and these counts have changed, all modules are noted; and the stack is kept with the count of unloads. So
//! an address in it is known to be of the module that was there then.
#![expect(unsafe_code, reason = "dl_iterate_phdr is a C function")]

use std::ffi::{CStr, c_int, c_void};
use std::sync::Mutex;

use crate::record::memory::{OwnVec, System, try_push};
use crate::snapshot::{Module, build_id};

/// Of an address and of its module: above all addresses that a process has, the number of a module whose addresses were
/// another one's before.
const TAG_SHIFT: u32 = 48;

/// Only ever tried: another thread may have it and wait for the loader, which this one may hold.
static NOTED: Mutex<Noted> = Mutex::new(Noted { counts: (0, 0), modules: OwnVec::new_in(System) });

/// So many modules were loaded, and so many unloaded.
type Counts = (u64, u64);

struct Noted {
    counts: Counts,
    modules: OwnVec<NotedModule>,
}

struct NotedModule {
    path: OwnVec<u8>,
    build_id: OwnVec<u8>,
    base: u64,
    start: u64,
    end: u64,
    /// It was there when so many had been unloaded, and not any more when so many had.
    from: u64,
    to: u64,
}

const STILL_THERE: u64 = u64::MAX;

impl NotedModule {
    /// Is it the same file at the same addresses?
    fn is(&self, other: &Self) -> bool {
        (self.base, self.start, self.end) == (other.base, other.start, other.end)
            && (&self.path, &self.build_id) == (&other.path, &other.build_id)
    }
}

/// How many modules have been unloaded so far; notes what is loaded if that has changed.
pub(super) fn unloads() -> u64 {
    let counts = counts();
    note(counts);
    counts.1
}

pub(super) fn counts() -> Counts {
    let mut counts = (0, 0);
    let data: *mut Counts = &mut counts;
    // SAFETY: `first` is called only during this call, with `data` as its last argument.
    unsafe { libc::dl_iterate_phdr(Some(first), data.cast()) };
    counts
}

/// # Safety
/// `info` and `counts` as `dl_iterate_phdr` in [`counts`] passes them.
unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _size: usize, counts: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid record.
    let info = unsafe { &*info };
    // SAFETY: the caller's pair, which nobody else uses meanwhile.
    unsafe { counts.cast::<Counts>().write((info.dlpi_adds, info.dlpi_subs)) };
    1
}

/// Notes what is loaded, unless it was noted when these were the counts.
pub(super) fn note(counts: Counts) {
    let Ok(mut noted) = NOTED.try_lock() else { return };
    if noted.counts == counts {
        return;
    }
    let mut visit = Visit { noted: &mut noted, unloads: 0, seen: OwnVec::new_in(System) };
    let data: *mut Visit<'_> = &mut visit;
    // SAFETY: `each` is called only during this call, with `data` as its last argument.
    unsafe { libc::dl_iterate_phdr(Some(each), data.cast()) };
    visit.end();
}

struct Visit<'a> {
    noted: &'a mut Noted,
    unloads: u64,
    /// Places in the list of those that are there.
    seen: OwnVec<usize>,
}

/// # Safety
/// `info` and `visit` as `dl_iterate_phdr` in [`note`] passes them.
unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _size: usize, visit: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid record.
    let info = unsafe { &*info };
    // SAFETY: the caller's, which nobody else uses meanwhile.
    let visit = unsafe { &mut *visit.cast::<Visit<'_>>() };
    visit.noted.counts = (info.dlpi_adds, info.dlpi_subs);
    visit.unloads = info.dlpi_subs;
    visit.see(info);
    0
}

impl Visit<'_> {
    fn see(&mut self, info: &libc::dl_phdr_info) {
        let headers = headers(info);
        let loads = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let base = info.dlpi_addr;
        let start = base.wrapping_add(loads().map(|header| header.p_vaddr).min().unwrap_or(0));
        let end = loads().map(|header| header.p_vaddr.saturating_add(header.p_memsz)).max().unwrap_or(0);
        let (end, path, id) = (base.wrapping_add(end), path(info), build_id_in(base, headers));
        let is_it = |known: &NotedModule| {
            known.to == STILL_THERE
                && (known.base, known.start, known.end) == (base, start, end)
                && (known.path.as_slice(), known.build_id.as_slice()) == (path, id)
        };
        let known = self.noted.modules.iter().position(is_it);
        let place = known.unwrap_or(self.noted.modules.len());
        if known.is_none() {
            let (Some(path), Some(build_id)) = (copied(path), copied(id)) else { return };
            let new = NotedModule { path, build_id, base, start, end, from: self.unloads, to: STILL_THERE };
            if !try_push(&mut self.noted.modules, new) {
                return;
            }
        }
        try_push(&mut self.seen, place);
    }

    fn end(&mut self) {
        for (place, module) in self.noted.modules.iter_mut().enumerate() {
            if module.to == STILL_THERE && !self.seen.contains(&place) {
                module.to = self.unloads;
            }
        }
    }
}

fn copied(bytes: &[u8]) -> Option<OwnVec<u8>> {
    let mut copy = OwnVec::new_in(System);
    copy.try_reserve_exact(bytes.len()).ok()?;
    copy.extend_from_slice(bytes);
    Some(copy)
}

fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if info.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: the loader says that this many headers lie there.
    unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
}

fn path(info: &libc::dl_phdr_info) -> &[u8] {
    if info.dlpi_name.is_null() {
        return &[];
    }
    // SAFETY: the loader's name is a C string that lives as long as the module is loaded.
    unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes()
}

fn build_id_in(base: u64, headers: &[libc::Elf64_Phdr]) -> &[u8] {
    let notes = headers.iter().filter(|header| header.p_type == libc::PT_NOTE);
    let bytes = |header: &libc::Elf64_Phdr| {
        let start = base.wrapping_add(header.p_vaddr) as *const u8;
        // SAFETY: a PT_NOTE segment of a loaded module is mapped and readable in its whole length.
        unsafe { std::slice::from_raw_parts(start, header.p_memsz as usize) }
    };
    notes.filter_map(|header| build_id(bytes(header))).next().unwrap_or_default()
}

/// The modules that were noted, if one of them is gone: then addresses alone do not say what they are of.
#[derive(Debug, Default)]
pub(crate) struct KnownModules {
    modules: Vec<KnownModule>,
}

#[derive(Debug)]
struct KnownModule {
    module: Module,
    from: u64,
    to: u64,
    /// 0 if nobody had its addresses before.
    tag: u64,
}

/// In place of a module's number: nobody knows which module had the address then.
const UNKNOWN: u64 = u16::MAX as u64;

/// Another thread notes modules, and waits for the loader, as long as a library is being loaded.
const TRIES: u32 = 100;

impl KnownModules {
    /// As of now. Not in a forked child: another thread of the parent may have held the loader's lock.
    pub(crate) fn now() -> Self {
        note(counts());
        for _ in 0..TRIES {
            if let Ok(noted) = NOTED.try_lock() {
                return Self::of(&noted.modules);
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Self::default()
    }

    fn of(noted: &[NotedModule]) -> Self {
        if noted.iter().all(|module| module.to == STILL_THERE) {
            return Self::default();
        }
        let tag = |module: &NotedModule| {
            // One that comes back has the number that it had.
            let at = noted.iter().position(|other| other.is(module)).unwrap_or(0);
            let mut before = noted.iter().take(at);
            let is_new = before.all(|other| other.end <= module.start || module.end <= other.start);
            if is_new { 0 } else { (at as u64 + 1).min(UNKNOWN) }
        };
        let known = |module: &NotedModule| KnownModule {
            module: Module {
                path: String::from_utf8_lossy(&module.path).into_owned(),
                build_id: module.build_id.to_vec(),
                base: module.base,
                range: module.start..module.end,
            },
            from: module.from,
            to: module.to,
            tag: tag(module),
        };
        Self { modules: noted.iter().map(known).collect() }
    }

    /// An address of a stack that was taken when so many modules had been unloaded, as a number that is no other
    /// module's address.
    pub(crate) fn address(&self, address: u64, unloads: u64) -> u64 {
        let holders = || self.modules.iter().filter(|known| known.module.range.contains(&address));
        let then = holders().filter(|known| (known.from..known.to).contains(&unloads)).max_by_key(|known| known.from);
        match (then, holders().count()) {
            (Some(known), _) => address | known.tag << TAG_SHIFT,
            (None, 0) => address,
            (None, 1) => holders().next().map_or(address, |known| address | known.tag << TAG_SHIFT),
            (None, _) => address | UNKNOWN << TAG_SHIFT,
        }
    }

    /// The modules that are loaded, then those that are gone, with addresses as [`address`](Self::address) has them; and
    /// how many are loaded.
    pub(crate) fn with(&self, mut loaded: Vec<Module>) -> (Vec<Module>, usize) {
        let same = |known: &KnownModule, module: &Module| {
            known.to == STILL_THERE && known.module.range == module.range && known.module.build_id == module.build_id
        };
        for module in &mut loaded {
            let known = self.modules.iter().find(|known| same(known, module));
            *module = tagged(module, known.map_or(0, |known| known.tag));
        }
        let still = loaded.len();
        for known in self.modules.iter().filter(|known| known.to != STILL_THERE) {
            let module = tagged(&known.module, known.tag);
            if !loaded.iter().any(|other| other.range == module.range) {
                loaded.push(module);
            }
        }
        (loaded, still)
    }
}

fn tagged(module: &Module, tag: u64) -> Module {
    let tag = tag << TAG_SHIFT;
    Module {
        base: module.base.wrapping_add(tag),
        range: module.range.start | tag..module.range.end | tag,
        ..module.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(name: &str, range: std::ops::Range<u64>, there: std::ops::Range<u64>) -> NotedModule {
        let copied = |bytes: &[u8]| copied(bytes).unwrap();
        let (path, build_id) = (copied(name.as_bytes()), copied(name.as_bytes()));
        NotedModule {
            path,
            build_id,
            base: range.start,
            start: range.start,
            end: range.end,
            from: there.start,
            to: there.end,
        }
    }

    fn name_at(known: &KnownModules, modules: &[Module], address: u64, unloads: u64) -> Option<String> {
        let address = known.address(address, unloads);
        let module = modules.iter().find(|module| module.range.contains(&address))?;
        assert_eq!(address - module.base, 0x10, "in the file");
        Some(module.path.clone())
    }

    #[test]
    fn an_address_is_of_the_module_that_was_there_then() {
        let list = [
            noted("program", 0x1000..0x2000, 0..STILL_THERE),
            noted("alpha", 0x5000..0x6000, 0..2),
            noted("beta", 0x5000..0x5800, 2..3),
            noted("gamma", 0x5000..0x6000, 4..6),
            noted("alpha", 0x5000..0x6000, 6..7),
            noted("gamma", 0x5000..0x6000, 7..STILL_THERE),
        ];
        let known = KnownModules::of(&list);
        let plain = |module: &NotedModule| Module {
            path: String::from_utf8(module.path.to_vec()).unwrap(),
            build_id: module.build_id.to_vec(),
            base: module.base,
            range: module.start..module.end,
        };
        let (modules, still) = known.with(vec![plain(&list[0]), plain(&list[3])]);
        assert_eq!((modules.len(), still), (4, 2));
        let at = |address, unloads| name_at(&known, &modules, address, unloads);
        assert_eq!([at(0x1010, 0), at(0x1010, 9)].map(|name| name.unwrap()), ["program", "program"]);
        let names = [0, 1, 2, 4, 5, 6, 7].map(|unloads| at(0x5010, unloads).unwrap());
        assert_eq!(names, ["alpha", "alpha", "beta", "gamma", "gamma", "alpha", "gamma"]);
        // Nobody was there when three had been unloaded.
        assert_eq!((at(0x5010, 3), at(0x9010, 0), known.address(0x9010, 0)), (None, None, 0x9010));
    }

    #[test]
    fn where_no_module_is_gone_addresses_are_what_they_are() {
        let known = KnownModules::of(&[noted("program", 0x1000..0x2000, 0..STILL_THERE)]);
        assert_eq!((known.address(0x1010, 7), known.with(Vec::new())), (0x1010, (Vec::new(), 0)));
    }
}
