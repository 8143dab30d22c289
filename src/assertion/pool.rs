//! Measurement on a rayon pool of its own, so that the workers' allocations count.

use rayon::ThreadPool;

use super::measure::{Measurement, Opened};
use crate::error::Error;
use crate::record::measure;
use crate::scope::{Context, ScopeGuard};

/// Runs `f` on a new rayon pool and measures what its workers allocate. This includes candle's operators on the CPU,
/// which otherwise share a pool with all other code.
///
/// The pool has rayon's default number of workers (`RAYON_NUM_THREADS`). With the feature `candle`, each worker
/// allocates gemm's buffer of 1 or 2 MiB before the measurement begins.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// use rayon::prelude::*;
/// let m = memtrace::measure_in_pool(|| (0..4).into_par_iter().map(|_| vec![0u8; 1000]).collect::<Vec<_>>());
/// assert!(m.leaked >= 4000 && m.unattributed.pool_bytes == 0);
/// ```
///
/// Memory of earlier pools that rayon frees late may count in `net`.
///
/// # Panics
/// Like [`measure`](crate::measure), and if the threads cannot be started.
#[track_caller]
pub fn measure_in_pool<T: Send>(f: impl FnOnce() -> T + Send) -> Measurement<T> {
    try_measure_in_pool(0, f).unwrap_or_else(|error| panic!("{error}"))
}

/// [`measure_in_pool`](crate::measure_in_pool) with this many workers (0 for rayon's default). It returns an error
/// instead of panicking.
///
/// # Errors
/// Like [`try_measure`](crate::try_measure), and if the threads cannot be started. `f` does not run then.
pub fn try_measure_in_pool<T: Send>(workers: usize, f: impl FnOnce() -> T + Send) -> Result<Measurement<T>, Error> {
    let wrong = |source| format!("cannot start a thread pool to measure in: {source}; use fewer workers");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
    let pool = pool.map_err(|source| Error::wrong(wrong(source)))?;
    warm(&pool);
    let opened = Opened::begin(false)?;
    measure::carry_id(opened.0.id);
    // The measurement is active on the workers only, so that the cost of `install` on this thread does not count.
    join(&pool, Context::current().measured_as(opened.0.id));
    let value = pool.install(f);
    Ok(Measurement { value, memory: opened.end() })
}

/// Enters the context on all workers. They stay in it until they end.
fn join(pool: &ThreadPool, here: Context) {
    pool.broadcast(|_| ScopeGuard::keep(here.enter()));
}

#[cfg(feature = "candle")]
fn warm(pool: &ThreadPool) {
    pool.broadcast(|_| crate::candle::warm());
}

#[cfg(not(feature = "candle"))]
fn warm(_pool: &ThreadPool) {}
