//! Measurements: what some code allocates, by device.

use std::ops::Deref;

use memtrace_core::snapshot::Device;

use crate::device::IntoDevice;
use crate::error::{CANNOT_MEASURE, Error, NOT_INSTALLED};
use crate::hook::cuda;
use crate::record::guard::{self, Own};
pub use crate::record::measure::Unattributed;
use crate::record::{Leaves, measure, own};
use crate::scope::ScopeGuard;
use crate::session::{Snapshot, measured_snapshot};

/// The value of measured code, and what the code allocated.
#[derive(Debug)]
#[must_use = "read its numbers, or take its `value`"]
#[non_exhaustive]
pub struct Measurement<T> {
    /// The return value.
    pub value: T,
    /// What the code allocated. `Deref` gives access to these fields: `m.peak` is `m.memory.peak`.
    pub memory: Measured,
}

impl<T, E> Measurement<Result<T, E>> {
    /// The measurement if the code returned `Ok`, or else the code's error.
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
    /// The code's error.
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

/// What some code allocated, on the heap and on CUDA devices.
///
/// It counts blocks of every size that were allocated by the code's thread, by threads that the code started, and by
/// work that was given its [`Context`](crate::Context). A free counts, whichever thread frees the block. Everything
/// else that is allocated meanwhile is [`unattributed`](Self::unattributed). For instance, candle's operators on the
/// CPU run on rayon's workers, whose blocks `measure_in_pool` counts.
#[derive(Debug)]
#[non_exhaustive]
pub struct Measured {
    /// The peak: the most bytes of the code's blocks that were live at once, on the device where this number is
    /// largest.
    pub peak: u64,
    /// Bytes allocated by the code that are still live, on all devices.
    pub leaked: u64,
    /// `leaked` minus the bytes of older blocks that the code freed: the change in live memory.
    pub net: i64,
    /// All bytes allocated, on all devices.
    pub allocated: u64,
    /// Number of blocks allocated.
    pub allocations: u64,
    /// Number of the allocated blocks that were freed.
    pub frees: u64,
    /// Allocations meanwhile by threads that no measurement covers.
    pub unattributed: Unattributed,
    /// Number of older blocks of unknown size that were freed; `net` leaves them out.
    pub unknown_frees: u64,
    /// Number of blocks that were not counted for lack of memory.
    pub lost_blocks: u64,
    details: Own<Details>,
}

impl Leaves for Measured {}

#[derive(Debug)]
struct Details {
    devices: Vec<MeasuredDevice>,
    seen: Vec<measure::MeasuredCopy>,
    /// Handed-over work: what threads that existed before the measurement may have allocated for the code.
    handed: Vec<measure::MeasuredCopy>,
    helpers: Vec<measure::Helper>,
}

/// What some code allocated on one device.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MeasuredDevice {
    /// The device.
    pub device: Device,
    /// The most bytes live at once.
    pub peak: u64,
    /// Bytes allocated by the code that are still live.
    pub leaked: u64,
    /// `leaked` minus the bytes of older blocks that the code freed.
    pub net: i64,
    /// All bytes allocated.
    pub allocated: u64,
    /// Number of blocks allocated.
    pub allocations: u64,
    /// Number of the allocated blocks that were freed.
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
            details: Own::new(Details { devices, seen, handed, helpers }),
        }
    }

    pub(super) fn handed(&self) -> &[measure::MeasuredCopy] {
        &self.details.handed
    }

    pub(super) fn helpers(&self) -> &[measure::Helper] {
        &self.details.helpers
    }

    pub(super) fn seen(&self) -> &[measure::MeasuredCopy] {
        &self.details.seen
    }

    /// The devices on which the code allocated, or freed older blocks.
    pub fn devices(&self) -> &[MeasuredDevice] {
        &self.details.devices
    }

    /// One device's numbers; zeros if nothing was allocated there.
    pub fn device(&self, device: impl IntoDevice) -> MeasuredDevice {
        let device = device.into_device();
        let zeros = MeasuredDevice { device, peak: 0, leaked: 0, net: 0, allocated: 0, allocations: 0, frees: 0 };
        self.details.devices.iter().find(|on| on.device == device).copied().unwrap_or(zeros)
    }

    /// A snapshot of the measured blocks, for a report by line. Resolves symbols, which takes a moment. The snapshot's
    /// log holds the newest 65,536 records of each device.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(|| measured_snapshot(self.seen()))
    }
}

/// Runs `f` and measures what it allocates. Needs no session.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// let m = memtrace::measure(|| vec![0u8; 4096]);
/// assert_eq!((m.peak, m.leaked, m.allocations), (4096, 4096, 1));
/// ```
///
/// Threads that `f` starts count. Work on existing threads counts if it is given the context:
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
/// If neither [`Alloc`](crate::Alloc) is installed nor CUDA loaded, because all numbers would be zero.
/// [`try_measure`](crate::try_measure) returns an error instead.
#[track_caller]
pub fn measure<T>(f: impl FnOnce() -> T) -> Measurement<T> {
    try_measure(f).unwrap_or_else(|error| panic!("{error}"))
}

/// [`measure`](crate::measure) that returns an error instead of panicking.
///
/// # Errors
/// If neither [`Alloc`](crate::Alloc) is installed nor CUDA loaded. `f` does not run then.
pub fn try_measure<T>(f: impl FnOnce() -> T) -> Result<Measurement<T>, Error> {
    let open = OpenMeasure::begin(false)?;
    let value = f();
    Ok(Measurement { value, memory: open.end() })
}

/// A measurement that is active on this thread.
#[doc(hidden)]
#[derive(Debug)]
#[must_use = "the measurement ends when it is dropped"]
pub struct OpenMeasure {
    /// This is dropped before `opened`, which closes the measurement.
    guard: Option<ScopeGuard>,
    opened: Opened,
}

impl OpenMeasure {
    /// Begins to measure this thread, or the whole process.
    pub(super) fn begin(whole: bool) -> Result<Self, Error> {
        let opened = Opened::begin(whole)?;
        let guard = ScopeGuard::of_measure(opened.0.id).ok_or_else(|| Error::wrong(CANNOT_MEASURE))?;
        measure::on_this_stack(opened.0);
        Ok(Self { guard: Some(guard), opened })
    }

    /// Ends the measurement.
    pub fn end(mut self) -> Measured {
        drop(self.guard.take());
        self.opened.end()
    }

    pub(super) fn opened(&self) -> measure::OpenMeasurement {
        self.opened.0
    }
}

/// An open measurement, which is closed when this is dropped. It is active on each thread that enters it by a scope
/// guard or a context.
#[derive(Debug)]
pub(super) struct Opened(pub(super) measure::OpenMeasurement);

impl Leaves for Opened {}

impl Opened {
    pub(super) fn begin(whole: bool) -> Result<Self, Error> {
        own(|| {
            #[cfg(feature = "rayon")]
            measure::workers_are(|| rayon::current_thread_index().is_some());
            if cuda::is_elsewhere() {
                let why = "cannot measure here: another copy of memtrace in this process has the CUDA hooks, and this \
                           one does not; use only one copy";
                return Err(Error::wrong(why));
            }
            if !guard::allocator_is_installed() && !cuda::is_loaded() {
                return Err(Error::wrong(NOT_INSTALLED));
            }
            measure::begin(whole).map(Self).ok_or_else(|| Error::wrong(CANNOT_MEASURE))
        })
    }

    pub(super) fn end(&self) -> Measured {
        own(|| Measured::new(measure::end(self.0)))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Closing twice is harmless, because ids are never reused.
        measure::close(self.0);
    }
}
