//! Every stack of a training step equals libgcc's. An environment variable requests the comparison, so this test has
//! its own process.
#![expect(unsafe_code, reason = "sets a variable of the environment")]

#[path = "support/training.rs"]
mod training;

use memtrace::{Device, StackContext};
use rayon::prelude::*;
use training::Training;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// Allocates on rayon's threads, in nested jobs.
fn on_many_threads() -> usize {
    let job = |n: usize| (0..n % 7).into_par_iter().map(|m| vec![0u8; 64 * (n + m) + 1].len()).sum::<usize>();
    (0..500usize).into_par_iter().map(job).sum()
}

/// Allocates on the way in and out, in part twice at the same depth.
#[inline(never)]
fn deep(levels: usize) -> usize {
    let block = || std::hint::black_box(vec![0u8; 1000 + levels % 3]).len();
    let looks = if levels.is_multiple_of(37) { block() + block() } else { 0 };
    let further_in = if levels == 0 { 0 } else { std::hint::black_box(deep as fn(usize) -> usize)(levels - 1) };
    looks + further_in + if levels.is_multiple_of(53) { block() } else { 0 }
}

#[test]
fn no_stack_differs_from_libgccs() {
    // SAFETY: no other code of this process uses the environment now.
    unsafe { std::env::set_var("MEMTRACE_CHECK_STACKS", "1") };
    let session = memtrace::builder().min_size(512).context(StackContext::All).start().unwrap();
    let mut training = Training::load().unwrap();
    // The second step is like the first, so that its stacks are guessed.
    (0..2).for_each(|_| training.step().unwrap());
    std::hint::black_box(on_many_threads());
    std::hint::black_box((deep(2000), deep(3000), deep(150)));
    drop(training);
    let snapshot = session.snapshot();
    let records = snapshot.device(Device::Cpu).unwrap().stats.allocations.allocated;
    let health = &snapshot.health;
    println!("{} stacks of {records} allocations and their frees were compared", health.compared_stacks);
    assert_eq!(health.wrong_stacks, 0);
    if cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu")) {
        // Nearly all are verified; the others are those that only libgcc can unwind. Each is walked, found from the
        // last stack, and compared if guessed: up to six times for an allocation and its free.
        assert!(health.compared_stacks > 1000 && health.compared_stacks as u64 > 4 * records, "{health:?}");
    }
}
