//! Measuring work on a pool of threads that nobody else uses.

use rayon::ThreadPool;

use super::measure::{Measurement, Opened};
use crate::error::Error;
use crate::record::measure;
use crate::scope::{Context, ScopeGuard};

/// Runs `f` on a pool of rayon workers of its own, and says what they allocate: candle's operators on the CPU
/// included, which otherwise share a pool with all other code.
///
/// The pool has as many workers as rayon would start by itself (`RAYON_NUM_THREADS`). With the feature `candle`
/// each of them has the buffer that gemm keeps for its thread, 1 or 2 MiB, before the measurement begins.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// use rayon::prelude::*;
/// let m = memtrace::measure_in_pool(|| (0..4).into_par_iter().map(|_| vec![0u8; 1000]).collect::<Vec<_>>());
/// assert!(m.leaked >= 4000 && m.unattributed.pool_bytes == 0);
/// ```
///
/// What rayon frees late of pools that ended before may count into `net`.
///
/// # Panics
/// As [`measure`](crate::measure), and if the threads cannot be started.
#[track_caller]
pub fn measure_in_pool<T: Send>(f: impl FnOnce() -> T + Send) -> Measurement<T> {
    try_measure_in_pool(0, f).unwrap_or_else(|error| panic!("{error}"))
}

/// [`measure_in_pool`](crate::measure_in_pool) with so many workers (0 for rayon's own choice), and with wrong use
/// as an error.
///
/// # Errors
/// As [`try_measure`](crate::try_measure), and if the threads cannot be started; then `f` was not run.
pub fn try_measure_in_pool<T: Send>(workers: usize, f: impl FnOnce() -> T + Send) -> Result<Measurement<T>, Error> {
    let wrong = |source| format!("cannot start a pool of threads to measure: {source}; use fewer workers");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
    let pool = pool.map_err(|source| Error::wrong(wrong(source)))?;
    warm(&pool);
    let opened = Opened::begin()?;
    measure::carry_id(opened.0.id);
    // In force on the workers alone: what installing the work costs is not the work's.
    join(&pool, Context::current().measured_as(opened.0.id));
    let value = pool.install(f);
    Ok(Measurement { value, memory: opened.end() })
}

/// All workers of the pool carry the context to their end.
fn join(pool: &ThreadPool, here: Context) {
    pool.broadcast(|_| ScopeGuard::keep(here.enter()));
}

#[cfg(feature = "candle")]
fn warm(pool: &ThreadPool) {
    pool.broadcast(|_| crate::candle::warm());
}

#[cfg(not(feature = "candle"))]
fn warm(_pool: &ThreadPool) {}
