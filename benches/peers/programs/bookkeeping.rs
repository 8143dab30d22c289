//! The workload with what no exact recorder in its process can do without: of every block an entry in a table, of every alloc and
//! free 32 bytes in a log, the highest total, and the blocks that were live at it. No stacks, times, threads or scopes; all memory
//! is reserved before. What recording adds beyond this is what it can save.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::{Mutex, PoisonError};

use peers::{Args, Outcome, run};

#[global_allocator]
static ALLOC: Booked = Booked;

static BOOKS: Mutex<Option<Books>> = Mutex::new(None);

/// Live blocks, and frees since the peak, that there is room for: as many as memtrace's table has room for in as much memory.
const BLOCKS: usize = PLACES / 4 * 3;
const PLACES: usize = 1 << 21;
const RECORDS: usize = 1 << 20;

/// A block's address, size, number, and a place for its stack.
type Entry = [u64; 4];
const EMPTY: Entry = [0; 4];

struct Books {
    /// Open addressing, linear probing.
    places: Vec<Entry>,
    live: usize,
    log: Vec<Entry>,
    freed: Vec<Entry>,
    number: u64,
    total: u64,
    /// The highest total, and the number of its last record.
    peak: (u64, u64),
    /// The most entries that were needed at once: live blocks, and those of the peak.
    entries: usize,
    lost: u64,
}

impl Books {
    fn new() -> Self {
        Self {
            places: on_huge_pages(PLACES),
            live: 0,
            log: on_huge_pages(RECORDS),
            freed: Vec::with_capacity(BLOCKS),
            number: 0,
            total: 0,
            peak: (0, 0),
            entries: 0,
            lost: 0,
        }
    }

    fn alloc(&mut self, address: usize, size: usize) {
        if self.live == BLOCKS {
            self.lost += 1;
            return;
        }
        self.live += 1;
        let entry = [address as u64, size as u64, self.number + 1, 0];
        let mut at = home(entry);
        while self.places[at] != EMPTY {
            at = after(at);
        }
        self.places[at] = entry;
        self.write(entry);
        self.entries = self.entries.max(self.live + self.freed.len());
        self.total += size as u64;
        if self.total > self.peak.0 {
            self.peak = (self.total, self.number);
            self.freed.clear();
        }
    }

    fn free(&mut self, address: usize) {
        let mut at = home([address as u64, 0, 0, 0]);
        while self.places[at][0] != address as u64 {
            if self.places[at] == EMPTY {
                // From before, or lost.
                return;
            }
            at = after(at);
        }
        let entry = self.places[at];
        self.close_gap(at);
        self.live -= 1;
        self.write(entry);
        self.total -= entry[1];
        if entry[2] <= self.peak.1 {
            match self.freed.len() < BLOCKS {
                true => self.freed.push(entry),
                false => self.lost += 1,
            }
        }
    }

    fn close_gap(&mut self, mut gap: usize) {
        let mut at = after(gap);
        while self.places[at] != EMPTY {
            let way = |from: usize| at.wrapping_sub(from) % PLACES;
            if way(home(self.places[at])) >= way(gap) {
                self.places[gap] = self.places[at];
                gap = at;
            }
            at = after(at);
        }
        self.places[gap] = EMPTY;
    }

    fn write(&mut self, entry: Entry) {
        self.number += 1;
        self.log[self.number as usize % RECORDS] = entry;
    }
}

fn home(entry: Entry) -> usize {
    (entry[0].wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % PLACES
}

fn after(place: usize) -> usize {
    (place + 1) % PLACES
}

#[expect(unsafe_code, reason = "`madvise`")]
fn on_huge_pages(length: usize) -> Vec<Entry> {
    let list = vec![EMPTY; length];
    let (start, size) = (list.as_ptr().addr().next_multiple_of(1 << 21), size_of_val(&*list) - (1 << 21));
    // SAFETY: within the list; the call changes nothing but the size of its pages.
    unsafe { libc::madvise(std::ptr::without_provenance_mut(start), size, libc::MADV_HUGEPAGE) };
    list
}

fn note(change: impl FnOnce(&mut Books)) {
    if let Some(books) = &mut *BOOKS.lock().unwrap_or_else(PoisonError::into_inner) {
        change(books);
    }
}

struct Booked;

#[expect(unsafe_code, reason = "an allocator")]
// SAFETY: every call is the system allocator's; `note` allocates nothing, because all tables have their memory.
unsafe impl GlobalAlloc for Booked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let block = unsafe { System.alloc(layout) };
        note(|books| books.alloc(block.addr(), layout.size()));
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(|books| books.free(block.addr()));
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(|books| books.free(block.addr()));
        // SAFETY: the caller's contract.
        let block = unsafe { System.realloc(block, layout, size) };
        note(|books| books.alloc(block.addr(), size));
        block
    }
}

fn main() -> Outcome<()> {
    let start = || {
        let books = Books::new();
        *BOOKS.lock()? = Some(books);
        Ok(())
    };
    run(&Args::parse()?, start, |()| {
        let books = BOOKS.lock()?.take().ok_or("nothing was recorded")?;
        if books.lost > 0 {
            return Err(format!("no room for {} blocks", books.lost).into());
        }
        let (peak, entries) = (books.peak.0, books.entries);
        Ok(format!(r#", "peak": {peak}, "user": null, "entries": {entries}"#))
    })
}
