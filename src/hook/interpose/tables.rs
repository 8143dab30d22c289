//! Tables of function pointers in the data of loaded objects.
//!
//! A library's constructor may run before memtrace's, or before the library's imports are patched. It may then have
//! stored addresses of originals that `dlsym` returned. So each object's writable data is searched once, after its
//! imports were patched. An aligned word that is exactly the address of a hooked function is replaced by the hook's
//! address. One search is enough: from then on, `dlsym` answers the object's look-ups with hooks.
//!
//! The kernel copies the searched memory, so unreadable memory does not cause a crash. Pages that were never written to
//! are left out, as far as that is known: reading them would make them resident. Memory of C's heap is not searched.
#![expect(unsafe_code, reason = "memory of loaded objects is read and changed in place")]

use std::ffi::c_void;
use std::ops::{ControlFlow, Range};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Interposition, elf as imports, memory};
use crate::elf;
use crate::record::own_pages::page_size;

/// Number of words that now lead to hooks, and of words that could not be changed.
static CHANGED: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static SEARCH: Mutex<Search> = Mutex::new(Search::new());

/// Number of bytes of a page that are copied at once.
const PART: usize = 4096;
const PAGES: usize = 512;
/// A segment whose file-backed part is larger is searched without this part, because it contains data and not tables.
/// An example is the 100 MB of cuBLAS.
const MOST_BYTES_OF_FILE: usize = 16 << 20;

pub(super) fn counts() -> (u64, u64) {
    (CHANGED.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed))
}

/// The first object in which addresses of originals were found, and the number of such words in all objects.
#[derive(Debug)]
pub(in crate::hook) struct Late {
    name: [u8; 64],
    length: usize,
    words: u64,
}

impl Late {
    pub(in crate::hook) fn object(&self) -> &[u8] {
        self.name.get(..self.length).unwrap_or_default()
    }
}

/// Searches the objects that have not been searched. Never waits: does nothing while another thread searches.
pub(super) fn search(interposition: &Interposition) {
    let originals = (interposition.originals)();
    if originals.is_empty() {
        return;
    }
    let Ok(mut search) = SEARCH.try_lock() else { return };
    let mut late = Late { name: [0; 64], length: 0, words: 0 };
    elf::each_object(|info| {
        search.forget_after(info.dlpi_subs);
        let is_own = elf::range(info).contains(&((&raw const SEARCH).addr() as u64));
        if !is_own && !imports::is_left_alone(info) && search.is_new(info.dlpi_addr as usize) {
            let before = late.words;
            let page = page_size();
            each_range(info, page, |range| late.words += search.range(range, page, &originals, interposition.hook_at));
            if before == 0 && late.words > 0 {
                late.set_name(elf::path(info).to_bytes());
            }
        }
        ControlFlow::Continue(())
    });
    drop(search);
    if late.words > 0 {
        (interposition.was_late)(&late);
    }
}

impl Late {
    /// Sets the name of the object's file. The loader has no name for the program's own file.
    fn set_name(&mut self, path: &[u8]) {
        let file = path.rsplit(|byte| *byte == b'/').next().filter(|file| !file.is_empty()).unwrap_or(b"the program");
        for (to, from) in self.name.iter_mut().zip(file) {
            *to = *from;
        }
        self.length = file.len().min(self.name.len());
    }
}

/// The ranges of an object's data that its code may write to. Excludes memory that the loader makes read-only (RELRO).
fn each_range(info: &libc::dl_phdr_info, page: usize, mut each: impl FnMut(Range<usize>)) {
    let headers = elf::headers(info);
    let at = |header: &libc::Elf64_Phdr| (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
    let relro = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO);
    let relro = relro.map_or(0..0, |header| at(header)..at(header).wrapping_add(header.p_memsz as usize));
    let (from, to) = (relro.start & !(page - 1), relro.end & !(page - 1));
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0) {
        let start = at(header);
        let (file, end) = (start.wrapping_add(header.p_filesz as usize), start.wrapping_add(header.p_memsz as usize));
        let first = if (from..to).contains(&start) { to.min(end) } else { start };
        // The rest of the file-backed part's last page belongs to that part: the loader writes there, to clear it.
        let file = file.next_multiple_of(page).min(end);
        let is_large = file.saturating_sub(first) > MOST_BYTES_OF_FILE;
        if !is_large && first < file {
            each(first..file);
        }
        if file < end {
            each(file..end);
        }
    }
}

/// Memory for the search. It is too large for a thread's stack.
struct Search {
    /// Addresses of the searched objects, as an open-addressing hash table.
    objects: [usize; 1024],
    unloaded: u64,
    resident: [u8; PAGES],
    words: [usize; PART / size_of::<usize>()],
}

impl Search {
    const fn new() -> Self {
        Self { objects: [0; 1024], unloaded: 0, resident: [0; PAGES], words: [0; PART / size_of::<usize>()] }
    }

    /// Forgets the searched objects if any was unloaded since the last call: another one may now be at its address.
    fn forget_after(&mut self, unloaded: u64) {
        if self.unloaded != unloaded {
            self.unloaded = unloaded;
            self.objects = [0; 1024];
        }
    }

    /// Enters an object. Returns true if it was not entered before, or if there is no room for it. The base of the
    /// program may be 0, which marks a free entry, so each key has its lowest bit set.
    fn is_new(&mut self, base: usize) -> bool {
        let key = base | 1;
        let first = base >> 12;
        for step in 0..self.objects.len() {
            let Some(slot) = self.objects.get_mut(first.wrapping_add(step) % 1024) else { return true };
            if *slot == key {
                return false;
            }
            if *slot == 0 {
                *slot = key;
                return true;
            }
        }
        true
    }

    /// Replaces the addresses of originals in a range. Returns how many it found.
    fn range(
        &mut self,
        range: Range<usize>,
        page: usize,
        originals: &Range<usize>,
        hook_at: fn(usize) -> Option<usize>,
    ) -> u64 {
        let mut found = 0;
        let mut start = range.start & !(page - 1);
        while start < range.end {
            let end = start.saturating_add(PAGES * page).min(range.end.next_multiple_of(page));
            // SAFETY: the vector has a byte for each page, and the kernel reads no memory of the range.
            let known = unsafe { libc::mincore(start as *mut c_void, end - start, self.resident.as_mut_ptr()) } == 0;
            for part in (start..end).step_by(PART) {
                let resident = self.resident.get((part - start) / page).is_none_or(|byte| byte & 1 != 0);
                if resident || !known {
                    found += self.part(part, &range, originals, hook_at);
                }
            }
            start = end;
        }
        found
    }

    fn part(
        &mut self,
        part: usize,
        range: &Range<usize>,
        originals: &Range<usize>,
        hook_at: fn(usize) -> Option<usize>,
    ) -> u64 {
        if !memory::copy_from(part, &mut self.words) {
            return 0;
        }
        let mut found = 0;
        for (word, slot) in self.words.iter().zip((part..).step_by(size_of::<usize>())) {
            if originals.contains(word)
                && range.contains(&slot)
                && let Some(hook) = hook_at(*word)
            {
                found += 1;
                change(slot as *mut usize, *word, hook);
            }
        }
        found
    }
}

fn change(slot: *mut usize, from: usize, to: usize) {
    if !memory::is_writable(slot) {
        REFUSED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: an aligned word of a loaded object, which stays loaded while the loader is locked.
    let slot = unsafe { AtomicUsize::from_ptr(slot) };
    // If the word has changed meanwhile, the new value belongs to the object.
    if slot.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        CHANGED.fetch_add(1, Ordering::Relaxed);
    }
}
