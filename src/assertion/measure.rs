//! What a piece of code allocates.

use std::ops::Deref;

use crate::device::IntoDevice;
use crate::error::{Error, Kind};
use crate::hook::cuda;
use crate::record::guard::{self, Own};
pub use crate::record::measure::Unattributed;
use crate::record::{Leaves, measure, own};
use crate::scope::ScopeGuard;
use crate::session::{Snapshot, measured_snapshot};
use crate::snapshot::Device;

/// What some code allocated, and the code's value.
#[derive(Debug)]
#[non_exhaustive]
pub struct Measurement<T> {
    /// What the code returned.
    pub value: T,
    /// What it allocated.
    pub memory: Measured,
}

impl<T, E> Measurement<Result<T, E>> {
    /// The measurement of code that went well, or its error.
    ///
    /// ```
    /// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
    /// # fn load() -> Result<Vec<u8>, std::io::Error> { Ok(vec![0; 4096]) }
    /// let m = memtrace::measure(load).transpose()?;
    /// assert_eq!((m.value.len(), m.peak), (4096, 4096));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The code's.
    pub fn transpose(self) -> Result<Measurement<T>, E> {
        self.value.map(|value| Measurement { value, memory: self.memory })
    }
}

impl<T> Deref for Measurement<T> {
    type Target = Measured;
    fn deref(&self) -> &Measured {
        &self.memory
    }
}

/// What some code allocated.
///
/// Counted are the blocks, of every size, that its thread allocated and that work allocated which carries its
/// [`Context`](crate::Context), less those of them that were freed, on whatever thread. Memory of CUDA devices is
/// seen besides the heap's. What else is allocated meanwhile is [`unattributed`](Self::unattributed): candle's
/// operators on the CPU use rayon's workers, see `measure_in_pool`.
#[derive(Debug)]
#[non_exhaustive]
pub struct Measured {
    /// The most bytes live at once on a device among the blocks allocated meanwhile: of the devices, the one with
    /// the most.
    pub peak: u64,
    /// Bytes of the blocks allocated meanwhile that are still live, on all devices.
    pub leaked: u64,
    /// `leaked` less the bytes of older blocks that were freed meanwhile: the change in what is held.
    pub net: i64,
    /// Bytes of all blocks allocated meanwhile, on all devices.
    pub allocated: u64,
    /// Number of blocks allocated meanwhile.
    pub allocations: u64,
    /// Number of those that were freed.
    pub frees: u64,
    /// What other threads allocated meanwhile that carry no measurement.
    pub unattributed: Unattributed,
    /// Older blocks that were freed meanwhile and of which nobody knew the size: `net` is without them.
    pub unknown_frees: u64,
    /// Blocks that could not be counted for lack of memory.
    pub lost_blocks: u64,
    behind: Own<Behind>,
}

impl Leaves for Measured {}

/// What is behind the numbers.
#[derive(Debug)]
struct Behind {
    devices: Vec<MeasuredDevice>,
    seen: Vec<measure::MeasuredCopy>,
    /// Work that was handed over to threads that others share, as it seems.
    handed: Vec<measure::MeasuredCopy>,
    helpers: Vec<measure::Helper>,
}

/// What some code allocated on a device.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MeasuredDevice {
    /// Which one.
    pub device: Device,
    /// The most bytes live at once.
    pub peak: u64,
    /// Bytes that are still live.
    pub leaked: u64,
    /// `leaked` less the bytes of older blocks that were freed meanwhile.
    pub net: i64,
    /// Bytes of all blocks allocated meanwhile.
    pub allocated: u64,
    /// Number of blocks allocated meanwhile.
    pub allocations: u64,
    /// Number of those that were freed.
    pub frees: u64,
}

impl MeasuredDevice {
    fn new(seen: &measure::MeasuredCopy) -> Self {
        let (stats, bytes) = (seen.ledger.stats, seen.ledger.stats.allocated_bytes);
        Self {
            device: seen.device,
            peak: seen.ledger.peak.bytes,
            leaked: bytes.current,
            net: bytes.current as i64 - seen.foreign_freed as i64,
            allocated: bytes.allocated,
            allocations: stats.allocations.allocated,
            frees: stats.allocations.freed,
        }
    }
}

impl Measured {
    fn new(seen: Option<measure::Seen>) -> Self {
        let measure::Seen { devices: all, unattributed, lost, unknown_frees, helpers } = seen.unwrap_or_default();
        let (handed, seen): (Vec<_>, Vec<_>) = all.into_iter().partition(|on| on.handed);
        let devices: Vec<MeasuredDevice> = seen.iter().map(MeasuredDevice::new).collect();
        let sum = |of: fn(&MeasuredDevice) -> u64| devices.iter().map(of).sum();
        Self {
            peak: devices.iter().map(|on| on.peak).max().unwrap_or(0),
            leaked: sum(|on| on.leaked),
            net: devices.iter().map(|on| on.net).sum(),
            allocated: sum(|on| on.allocated),
            allocations: sum(|on| on.allocations),
            frees: sum(|on| on.frees),
            unattributed,
            unknown_frees,
            lost_blocks: lost,
            behind: Own::new(Behind { devices, seen, handed, helpers }),
        }
    }

    pub(super) fn handed(&self) -> &[measure::MeasuredCopy] {
        &self.behind.handed
    }

    pub(super) fn helpers(&self) -> &[measure::Helper] {
        &self.behind.helpers
    }

    pub(super) fn seen(&self) -> &[measure::MeasuredCopy] {
        &self.behind.seen
    }

    /// Each device on which something was allocated, or freed that is older.
    pub fn devices(&self) -> &[MeasuredDevice] {
        &self.behind.devices
    }

    /// One device's part; zeros if nothing was allocated there.
    pub fn device(&self, device: impl IntoDevice) -> MeasuredDevice {
        let device = device.into_device();
        let zeros = MeasuredDevice { device, peak: 0, leaked: 0, net: 0, allocated: 0, allocations: 0, frees: 0 };
        self.behind.devices.iter().find(|on| on.device == device).copied().unwrap_or(zeros)
    }

    /// The blocks behind the numbers, with their lines: resolves symbols, so it takes a moment. The log holds the
    /// newest 65,536 records of each device.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(|| measured_snapshot(self.seen()))
    }
}

/// Runs `f` and says what it allocates. Needs no session.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// let m = memtrace::measure(|| vec![0u8; 4096]);
/// assert_eq!((m.peak, m.leaked, m.allocations), (4096, 4096, 1));
/// ```
///
/// Work on other threads counts if it carries the context:
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// let m = memtrace::measure(|| {
///     let here = memtrace::Context::current();
///     std::thread::scope(|threads| threads.spawn(|| here.scope(|| vec![0u8; 1 << 20])).join().unwrap())
/// });
/// assert_eq!(m.leaked, 1 << 20);
/// ```
///
/// # Panics
/// If neither [`Alloc`](crate::Alloc) is installed nor CUDA loaded: the numbers would be zeros that mean
/// nothing. [`try_measure`](crate::try_measure) returns that as an error.
#[track_caller]
pub fn measure<T>(f: impl FnOnce() -> T) -> Measurement<T> {
    try_measure(f).unwrap_or_else(|error| panic!("{error}"))
}

/// [`measure`](crate::measure), with wrong use as an error.
///
/// # Errors
/// If neither [`Alloc`](crate::Alloc) is installed nor CUDA loaded; then `f` was not run.
pub fn try_measure<T>(f: impl FnOnce() -> T) -> Result<Measurement<T>, Error> {
    let open = OpenMeasure::begin()?;
    let value = f();
    Ok(Measurement { value, memory: open.end() })
}

/// A measurement under way, in force on this thread.
#[doc(hidden)]
#[derive(Debug)]
#[must_use]
pub struct OpenMeasure {
    /// Left before the measurement is closed.
    guard: Option<ScopeGuard>,
    opened: Opened,
}

impl OpenMeasure {
    /// Begins to measure this thread.
    ///
    /// # Errors
    /// If nothing can be seen here.
    pub fn begin() -> Result<Self, Error> {
        Self::begin_on(false)
    }

    /// The same for the whole process.
    pub(super) fn begin_on(whole: bool) -> Result<Self, Error> {
        let opened = Opened::begin_on(whole)?;
        let guard = ScopeGuard::of_measure(opened.0.id).ok_or(Kind::CannotMeasure)?;
        measure::on_this_stack(opened.0);
        Ok(Self { guard: Some(guard), opened })
    }

    /// What was measured.
    pub fn end(mut self) -> Measured {
        drop(self.guard.take());
        self.opened.end()
    }

    pub(super) fn opened(&self) -> measure::OpenMeasurement {
        self.opened.0
    }
}

/// A measurement that is open and in force where it is entered; closed when dropped.
#[derive(Debug)]
pub(super) struct Opened(pub(super) measure::OpenMeasurement);

impl Leaves for Opened {}

impl Opened {
    pub(super) fn begin() -> Result<Self, Error> {
        Self::begin_on(false)
    }

    fn begin_on(whole: bool) -> Result<Self, Error> {
        own(|| {
            #[cfg(feature = "rayon")]
            measure::workers_are(|| rayon::current_thread_index().is_some());
            if cuda::is_elsewhere() {
                let why = "cannot measure here: another copy of memtrace in this process sees CUDA's memory, and this \
                           one does not; use one copy only";
                return Err(Error::wrong(why));
            }
            if !guard::allocator_is_installed() && !cuda::is_loaded() {
                return Err(Kind::NotInstalled.into());
            }
            measure::begin(whole).map(Self).ok_or(Kind::CannotMeasure.into())
        })
    }

    pub(super) fn end(&self) -> Measured {
        own(|| Measured::new(measure::end(self.0)))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Closing twice is harmless: numbers are never used again.
        measure::close(self.0);
    }
}
