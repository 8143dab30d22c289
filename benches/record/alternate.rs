//! Two threads that take turns, for a tool that sees each store to memory: which lines do both of them write?

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::ALLOC;
use crate::chains::{Blocks, deeper};

const LIVE: usize = 500;
const WARM_UP: usize = 2048;
/// Turns of each thread while another one enters scopes, and of those that are marked.
const MET: usize = 8;
const MARKED: usize = 512;
const LEVELS: usize = 8;

/// Where the page of marks is, in each run. A thread writes its line of it before a turn, and [`END`] after it.
/// `cargo xtask instructions` knows both.
const MARKS: usize = 0x6000_0000_0000;
const END: usize = 0x800;

/// Which thread's turn it is: the number of turns so far, modulo two.
static TURN: AtomicUsize = AtomicUsize::new(0);
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Runs the turns. With `meet` a third thread enters scopes first, so that the two find the ledger's lock taken.
pub(crate) fn run(meet: bool) {
    let marks = marks();
    let _session = memtrace::builder().start().expect("no other session is under way");
    thread::scope(|scope| {
        let both = [0, 1].map(|number| scope.spawn(move || on_thread(number, marks)));
        while meet && !IS_OVER.load(Ordering::Relaxed) {
            memtrace::scope("meet", || ());
        }
        both.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    });
}

fn on_thread(number: usize, marks: &[AtomicUsize]) {
    let mut blocks = Blocks::new(&ALLOC, LIVE, 99 + number as u64, false);
    deeper(LEVELS, &mut || {
        // One call for all pairs, so that the stacks of the marked ones occurred before.
        let (in_turns, marked) = black_box((WARM_UP, WARM_UP + MET));
        for pair in 0..marked + MARKED {
            if pair >= in_turns {
                wait_for_turn(number);
            }
            if pair >= marked {
                IS_OVER.store(true, Ordering::Relaxed);
                marks[number * 8].store(1, Ordering::SeqCst);
            }
            blocks.exchange(&ALLOC, 1);
            if pair >= in_turns {
                marks[END / size_of::<usize>()].store(1, Ordering::SeqCst);
                TURN.fetch_add(1, Ordering::Release);
            }
        }
    });
}

fn wait_for_turn(number: usize) {
    while TURN.load(Ordering::Acquire) % 2 != number {
        thread::yield_now();
    }
}

fn marks() -> &'static [AtomicUsize] {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let flags = flags | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new page, at a place where nothing is.
    let page = unsafe { libc::mmap(MARKS as *mut _, 4096, protection, flags, -1, 0) };
    assert_eq!(page as usize, MARKS, "nothing else is there");
    // SAFETY: the page is zeroed, written through atomics only, and never unmapped.
    unsafe { std::slice::from_raw_parts(page.cast(), 4096 / size_of::<usize>()) }
}
