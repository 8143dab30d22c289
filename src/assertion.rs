//! What a piece of code allocates: [`measure`](crate::measure), and limits on it.

use std::fmt;

use crate::error::Error;
use crate::export::text;
use crate::record::guard::{self, Own};
use crate::record::{LedgerCopy, measure};
use crate::session::{IntoBytes, Snapshot, ledger_snapshot};
use crate::units::{Bytes, grouped, signed};

/// What the calling thread allocated while some code ran, and the code's value.
#[derive(Debug)]
#[non_exhaustive]
pub struct Measurement<T> {
    /// What the code returned.
    pub value: T,
    /// What it allocated.
    pub memory: Measured,
}

impl<T> std::ops::Deref for Measurement<T> {
    type Target = Measured;
    fn deref(&self) -> &Measured {
        &self.memory
    }
}

/// What the calling thread allocated while some code ran.
///
/// Counted are the blocks that this thread allocated, of every size, less those of them that it freed.
/// Work on other threads is not seen: neither what they allocate (candle's CPU operators run partly
/// on rayon's threads) nor what they free of this thread's blocks.
#[derive(Debug)]
#[non_exhaustive]
pub struct Measured {
    /// The most bytes live at once among the blocks allocated meanwhile.
    pub peak: u64,
    /// Bytes of the blocks allocated meanwhile that are still live.
    pub leaked: u64,
    /// `leaked` less the bytes of older blocks that were freed meanwhile: the change in what is held.
    pub net: i64,
    /// Bytes of all blocks allocated meanwhile.
    pub allocated: u64,
    /// Number of blocks allocated meanwhile.
    pub allocations: u64,
    /// Number of those that were freed.
    pub frees: u64,
    ledger: Own<Option<LedgerCopy>>,
}

impl Measured {
    fn new(ledger: Own<Option<LedgerCopy>>, foreign_freed: u64) -> Self {
        let (peak, stats) = ledger.as_ref().map(|copy| (copy.peak.bytes, copy.stats)).unwrap_or_default();
        let bytes = stats.allocated_bytes;
        Self {
            peak,
            leaked: bytes.current,
            net: bytes.current as i64 - foreign_freed as i64,
            allocated: bytes.allocated,
            allocations: stats.allocations.allocated,
            frees: stats.allocations.freed,
            ledger,
        }
    }

    /// The blocks behind the numbers, with their lines: resolves symbols, so it takes a moment.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(|| ledger_snapshot(self.ledger.iter().cloned().collect()))
    }
}

/// Runs `f` and says what the calling thread allocated meanwhile. Needs no session.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// let m = memtrace::measure(|| vec![0u8; 4096]);
/// assert_eq!((m.peak, m.leaked, m.allocations), (4096, 4096, 1));
/// ```
///
/// # Panics
/// If the program has not installed [`Alloc`](crate::Alloc): the numbers would be zeros that mean
/// nothing. [`try_measure`](crate::try_measure) returns that as an error.
#[track_caller]
pub fn measure<T>(f: impl FnOnce() -> T) -> Measurement<T> {
    try_measure(f).unwrap_or_else(|error| panic!("{error}"))
}

/// [`measure`](crate::measure), with wrong use as an error.
///
/// # Errors
/// If the program has not installed [`Alloc`](crate::Alloc); then `f` was not run.
pub fn try_measure<T>(f: impl FnOnce() -> T) -> Result<Measurement<T>, Error> {
    let open = OpenMeasure::begin()?;
    let value = f();
    Ok(Measurement { value, memory: open.end() })
}

/// A measurement under way on this thread; what [`assert_peak!`](crate::assert_peak) expands to.
#[doc(hidden)]
#[derive(Debug)]
#[must_use]
pub struct OpenMeasure {
    depth: usize,
    thread: std::marker::PhantomData<*const ()>,
}

impl OpenMeasure {
    /// Begins to measure this thread.
    ///
    /// # Errors
    /// If nothing can be seen here.
    pub fn begin() -> Result<Self, Error> {
        if !guard::allocator_is_installed() {
            return Err(Error::not_installed());
        }
        let depth = measure::begin().ok_or_else(Error::cannot_measure)?;
        Ok(Self { depth, thread: std::marker::PhantomData })
    }

    /// What was measured.
    pub fn end(self) -> Measured {
        let mut foreign_freed = 0;
        let ledger = Own::make(|| {
            let (copy, foreign) = measure::end(self.depth)?;
            foreign_freed = foreign;
            Some(copy)
        });
        Measured::new(ledger, foreign_freed)
    }
}

impl Drop for OpenMeasure {
    fn drop(&mut self) {
        // Closing twice is harmless: nothing was opened in between.
        measure::close(self.depth);
    }
}

/// A limit that was exceeded; prints the limit, what was measured and the lines that held it.
#[derive(Debug)]
pub struct Violation {
    limit: u64,
    measured: Measured,
}

impl Violation {
    /// What was measured.
    pub fn measured(&self) -> &Measured {
        &self.measured
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = &self.measured;
        let (peak, limit) = (Bytes(m.peak), Bytes(self.limit));
        writeln!(f, "peak of {peak} ({} bytes) is over the limit of {limit}", grouped(m.peak))?;
        let allocations = grouped(m.allocations);
        writeln!(f, "{} in {allocations} allocations on this thread, net {}", Bytes(m.allocated), signed(m.net))?;
        let snapshot = m.snapshot();
        let lines = Own::make(|| text::top_lines(&snapshot, TOP_LINES));
        write!(f, "At the peak, by line\n{}", *lines)
    }
}

impl std::error::Error for Violation {}

const TOP_LINES: usize = 10;

/// Holds a measurement against a limit in bytes.
///
/// # Errors
/// If its peak is over the limit.
pub fn check_peak(limit: u64, measured: Measured) -> Result<Measured, Box<Violation>> {
    if measured.peak > limit { Err(Box::new(Violation { limit, measured })) } else { Ok(measured) }
}

/// The parts of [`assert_peak!`](crate::assert_peak).
#[doc(hidden)]
pub mod shell {
    use super::{Error, IntoBytes, OpenMeasure, Own, check_peak};

    #[track_caller]
    pub fn limit(limit: impl IntoBytes) -> u64 {
        let read = Own::make(|| limit.into_bytes());
        unwrap(read.as_ref().map_err(Error::duplicate).copied())
    }

    #[track_caller]
    pub fn begin() -> OpenMeasure {
        unwrap(OpenMeasure::begin())
    }

    #[track_caller]
    pub fn end(open: OpenMeasure, limit: u64, code: &str) {
        if let Err(violation) = check_peak(limit, open.end()) {
            panic!("assert_peak!({code}): {violation}");
        }
    }

    /// Bytes that memtrace itself holds through the watched allocator; a constant once warm.
    pub fn own_bytes() -> i64 {
        crate::record::untraced::own()
    }

    #[track_caller]
    fn unwrap<T>(result: Result<T, Error>) -> T {
        result.unwrap_or_else(|error| panic!("assert_peak!: {error}"))
    }
}
