//! Sixty-four parallel tests in one process, each with a known peak: the allocations of one never count for another.
//! `MEMTRACE_TEST_RUNS=1000 cargo test --test parallel` runs them a thousand times.

#[path = "../support/child.rs"]
mod child;
#[path = "../cuda/support.rs"]
#[allow(dead_code, unsafe_code, reason = "shared with the tests of the hooks")]
mod gpu;
#[path = "../support/mod.rs"]
mod support;
mod work;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use support::Raw;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

macro_rules! sixteen_of {
    ($($kind:ident),*) => {$(
        mod $kind {
            sixteen_of!(@tests $kind t00 0, t01 1, t02 2, t03 3, t04 4, t05 5, t06 6, t07 7,
                t08 8, t09 9, t10 10, t11 11, t12 12, t13 13, t14 14, t15 15);
        }
    )*};
    (@tests $kind:ident $($name:ident $number:literal),*) => {$(
        #[test]
        #[ignore = "run by `a_thousand_runs`, on the simulated GPU"]
        fn $name() {
            (0..3).for_each(|round| crate::work::$kind($number * 3 + round));
        }
    )*};
}

sixteen_of!(own_thread, scoped_threads, own_pool, simulated_cuda);

/// A thread that allocates and frees without a measurement until this is dropped.
struct Noise(&'static AtomicBool);

impl Noise {
    fn begin() -> Self {
        static GOES_ON: AtomicBool = AtomicBool::new(true);
        std::thread::spawn(|| {
            while GOES_ON.load(Relaxed) {
                let blocks: Vec<Raw> = (1..50).map(|n| Raw::new(n * 1000)).collect();
                std::thread::yield_now();
                drop(blocks);
            }
        });
        Self(&GOES_ON)
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

#[test]
#[ignore = "run with the sixty-four"]
fn noise() {
    let _noise = Noise::begin();
    std::thread::sleep(std::time::Duration::from_millis(100));
}

#[test]
fn a_thousand_runs() {
    let runs = std::env::var("MEMTRACE_TEST_RUNS").map_or(1, |runs| runs.parse().unwrap());
    for run in 1..=runs {
        let mut command = child::program(&std::env::current_exe().unwrap());
        command.args(["--ignored", "--test-threads=65"]).env("LD_LIBRARY_PATH", gpu::driver_folder());
        let all = child::ended(&mut command);
        assert!(all.status.success() && all.said("65 passed; 0 failed; 0 ignored"), "run {run}: {all}");
    }
}
