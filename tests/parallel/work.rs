//! Four kinds of work with known peaks.

use std::sync::{Barrier, Mutex};

use cudarc::driver::CudaContext;
use memtrace::{Context, Device, Measured, measure, try_measure_in_pool};

use crate::support::Raw;

/// Pseudorandom numbers from a seed.
fn numbers(seed: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(seed as u64 * 2 + 1), |n| {
        Some(n.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407))
    })
    .map(|n| (n >> 33) as usize)
    .skip(1)
}

/// Peak, kept and allocated bytes, and the number of allocations.
type Known = (u64, u64, u64, u64);

fn known_of(measured: &Measured, device: Device) -> Known {
    let on = measured.device(device);
    (on.peak, on.leaked, on.allocated, on.allocations)
}

/// Allocates and frees at random; returns the kept blocks and the expected figures.
fn program<B>(seed: usize, slots: &mut [Option<(u64, B)>], mut alloc: impl FnMut(usize) -> B) -> Known {
    let (mut now, mut peak, mut allocated, mut allocations) = (0, 0, 0, 0);
    let mut numbers = numbers(seed);
    let mut next = || numbers.next().unwrap();
    for _ in 0..40 {
        let slot = next() % slots.len();
        if let Some((size, block)) = slots[slot].take() {
            drop(block);
            now -= size;
        } else {
            let size = 1 + next() % 5000 + seed;
            slots[slot] = Some((size as u64, alloc(size)));
            (now, allocated, allocations) = (now + size as u64, allocated + size as u64, allocations + 1);
            peak = peak.max(now);
        }
        if size_of::<B>() > 0 && next() % 8 == 0 {
            std::thread::yield_now();
        }
    }
    (peak, now, allocated, allocations)
}

/// Works on the test's thread.
pub(crate) fn own_thread(seed: usize) {
    let mut slots: Vec<Option<(u64, Raw)>> = (0..10).map(|_| None).collect();
    let measured = measure(|| program(seed, &mut slots, Raw::new));
    assert_eq!(known_of(&measured, Device::Cpu), measured.value);
}

/// Works on threads that carry the context; some allocate, others free.
pub(crate) fn scoped_threads(seed: usize) {
    const THREADS: usize = 3;
    let (here, given): (Mutex<Option<Context>>, Mutex<Vec<Raw>>) =
        (Mutex::default(), Mutex::new(Vec::with_capacity(8)));
    let barrier = Barrier::new(THREADS + 1);
    let work = |number: usize| {
        barrier.wait();
        let here = here.lock().unwrap().unwrap();
        let block = here.scope(|| Raw::new(1000 * number + seed));
        barrier.wait();
        // Every thread holds a block now.
        given.lock().unwrap().push(block);
        barrier.wait();
    };
    let measured = std::thread::scope(|threads| {
        let started: Vec<_> = (1..=THREADS).map(|number| threads.spawn(move || work(number))).collect();
        let measured = measure(|| {
            *here.lock().unwrap() = Some(Context::current());
            barrier.wait();
            barrier.wait();
            barrier.wait();
        });
        started.into_iter().for_each(|thread| thread.join().unwrap());
        measured
    });
    let all = (1000 * (1 + 2 + 3) + 3 * seed) as u64;
    assert_eq!(known_of(&measured, Device::Cpu), (all, all, all, 3));
    // A thread without the context frees them, while a measurement is active to which they do not belong.
    let freed = measure(|| given.lock().unwrap().clear());
    assert_eq!((freed.net, freed.peak), (-(all as i64), 0));
}

/// Works in its own pool.
pub(crate) fn own_pool(seed: usize) {
    let both = Barrier::new(2);
    let half = |size: usize| {
        let block = Raw::new(size + seed);
        both.wait();
        block
    };
    let measured = try_measure_in_pool(2, || {
        let (a, b) = rayon::join(|| half(1000), || half(2000));
        drop(a);
        b
    });
    let measured = measured.unwrap();
    let (a, b) = (1000 + seed as u64, 2000 + seed as u64);
    assert_eq!(known_of(&measured, Device::Cpu), (a + b, b, a + b, 2));
}

/// Works on a simulated GPU that all tests share.
pub(crate) fn simulated_cuda(seed: usize) {
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let mut slots: Vec<_> = (0..10).map(|_| None).collect();
    // SAFETY: the memory is not read.
    #[expect(unsafe_code, reason = "memory that is not initialised, and not read")]
    let alloc = |size: usize| unsafe { stream.alloc::<u8>(size) }.unwrap();
    let measured = measure(|| program(seed, &mut slots, alloc));
    assert_eq!(known_of(&measured, Device::Cuda(0)), measured.value);
    let kept = measured.value.1;
    let freed = measure(|| slots.clear());
    // These frees count the driver's sizes, which may be rounded.
    let net = -freed.device(Device::Cuda(0)).net;
    assert!((kept as i64..=kept as i64 + 512 * 10).contains(&net), "{kept} bytes freed, {net} counted");
}
