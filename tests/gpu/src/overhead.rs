//! The cost of an allocation and a free, past the hooks and through them. The rows only inform.
#![expect(unsafe_code, reason = "the driver's functions are called by their addresses")]

use std::ffi::CStr;
use std::time::Instant;

use memtrace::{Builder, StackContext};

use crate::gpu::{Gpu, past_hooks, through_hooks};
use crate::raw::{self, LEGACY, Outcome};
use crate::table::Table;

type Alloc = extern "C" fn(*mut u64, usize, usize) -> i32;
type Free = extern "C" fn(u64, usize) -> i32;
type Calls = (Alloc, Free);

const ROUNDS: usize = 9;
const PAIRS: usize = 2000;

/// Functions to call, and the recording that is active meanwhile.
struct Case {
    name: &'static str,
    calls: Calls,
    session: Option<fn() -> Builder>,
}

pub(crate) fn rows(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    gpu.settle();
    // While a block is in use the pool keeps its reserved memory.
    let held = raw::alloc_async(1 << 20, LEGACY)?;
    let cases = cases();
    let medians = medians(&cases, |case| measure(gpu, case));
    for (case, median) in cases.iter().zip(medians) {
        let more = median - medians[0];
        table.info(case.name, format!("{median:.0} ns a pair of alloc and free, {more:+.0} to the first"));
    }
    raw::free_async(held, LEGACY)
}

/// Medians of the figures that `measure` returns for each case.
pub(crate) fn medians<T, const N: usize>(cases: &[T; N], measure: impl Fn(&T) -> f64) -> [f64; N] {
    let mut figures = cases.each_ref().map(|_| Vec::new());
    // Each round runs every case, so that a temporary slowdown of the machine affects all of them.
    for _ in 0..ROUNDS {
        cases.iter().zip(&mut figures).for_each(|(case, figures)| figures.push(measure(case)));
    }
    figures.map(|mut figures| {
        figures.sort_unstable_by(f64::total_cmp);
        figures[ROUNDS / 2]
    })
}

fn cases() -> [Case; 4] {
    let past = calls(past_hooks);
    let through = calls(through_hooks);
    let without_stacks = || memtrace::builder().context(StackContext::None);
    [
        Case { name: "cost: past the hooks", calls: past, session: None },
        Case { name: "cost: hooked, no recording", calls: through, session: None },
        Case { name: "cost: recording without stacks", calls: through, session: Some(without_stacks) },
        Case { name: "cost: recording with stacks", calls: through, session: Some(memtrace::builder) },
    ]
}

fn calls(find: impl Fn(&CStr) -> usize) -> Calls {
    let (alloc, free) = (find(c"cuMemAllocAsync"), find(c"cuMemFreeAsync"));
    assert!(alloc != 0 && free != 0, "the driver has them");
    // SAFETY: the function has this type.
    let alloc = unsafe { std::mem::transmute::<usize, Alloc>(alloc) };
    // SAFETY: the function has this type.
    let free = unsafe { std::mem::transmute::<usize, Free>(free) };
    (alloc, free)
}

/// Nanoseconds for each pair, in a recording of its own if the case has one.
fn measure(gpu: &Gpu, case: &Case) -> f64 {
    let _session = case.session.map(|options| options().start().expect("no other session is under way"));
    exchange(case.calls, 64);
    gpu.context.synchronize().expect("the GPU works");
    let began = Instant::now();
    exchange(case.calls, PAIRS);
    began.elapsed().as_nanos() as f64 / PAIRS as f64
}

fn exchange((alloc, free): Calls, pairs: usize) {
    let mut address = 0;
    for _ in 0..pairs {
        assert_eq!(alloc(&mut address, 4096, 0), 0, "the allocation is granted");
        assert_eq!(free(address, 0), 0, "the free is granted");
    }
}
