//! Builder of a session. Its options have PyTorch's names.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use memtrace_core::snapshot::{Action, Device, Enabled, MAX_INTERVAL, Rules, Settings, StackContext, StackKind};
use memtrace_core::units::{MAX_STACK_DEPTH, parse_bytes};

use super::dumps::Dumps;
use super::outputs::Snapshot;
use super::schedule::Schedule;
use super::signals::Signal;
use super::stream::StreamLimits;
use crate::error::Error;
use crate::record::unwind::StackCheck;
use crate::session::Session;

/// Options for a recording. [`builder`](crate::builder) creates them, and [`start`](Builder::start) uses them.
///
/// Names follow `torch.cuda.memory._record_memory_history` where it has them. One default differs: `context` is
/// [`StackContext::Alloc`] here and "all" there.
///
/// ```no_run
/// let session = memtrace::builder().max_entries(100_000).min_size("64 KiB").start()?;
/// # Ok::<(), memtrace::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until `start` is called"]
pub struct Builder {
    plan: SessionPlan,
    on_trace_ready: Option<TraceReady>,
    /// The first invalid option, reported by `start`.
    wrong: Option<Error>,
}

/// All options, as data.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionPlan {
    pub(super) settings: Settings,
    /// True if the user chose `min_size`; then sampling must not change it.
    pub(super) min_size_is_set: bool,
    pub(super) dumps: Dumps,
    pub(super) stream: Option<String>,
    pub(super) stream_from_environment: bool,
    pub(super) stream_limits: StreamLimits,
    pub(super) schedule: Option<Schedule>,
    pub(super) check_stacks: StackCheck,
    pub(super) sample_seed: u64,
}

impl SessionPlan {
    /// Applies `MEMTRACE_OUT`. A name that ends in `.memtrace` means that the recording is streamed to this file. Then
    /// nothing is dumped at the end or on a panic, unless the code chose a file for dumps. For any other name, both
    /// dumps go to this file.
    pub(super) fn output(&mut self, pattern: &str) {
        if pattern.ends_with(".memtrace") {
            self.stream = Some(pattern.to_owned());
            self.stream_from_environment = true;
            if self.dumps.path.is_none() {
                self.dumps.at_end = false;
                self.dumps.on_panic = false;
            }
        } else {
            self.dumps.path = Some(pattern.to_owned());
            self.dumps.at_end = true;
            self.dumps.on_panic = true;
        }
    }

    /// Derives unset options from the others: without a `min_size`, sampling covers blocks of every size.
    pub(super) fn settle(&mut self) {
        if self.settings.sample_interval.is_some() && !self.min_size_is_set {
            self.settings.min_size = 0;
        }
        self.dumps.settle();
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let Settings { enabled, min_size, sample_interval, max_entries, stack_depth, skip_actions, .. } =
            &self.settings;
        if *max_entries == 0 && *enabled == Enabled::All {
            return Err(Error::wrong(
                "max_entries is 0; give the number of records to keep (1 or more), \
                 or `enabled(Enabled::State)` for a recording without event history",
            ));
        }
        if *min_size != 0 && !min_size.is_power_of_two() {
            let below = 1u64 << min_size.ilog2();
            let above = min_size.checked_next_power_of_two().map_or(String::new(), |above| format!(" or {above}"));
            let message = format!("min_size is {min_size} bytes, which is not a power of two; use {below}{above}");
            return Err(Error::wrong(message));
        }
        if let Some(interval) = sample_interval
            && !(interval.is_power_of_two() && interval.get() <= MAX_INTERVAL)
        {
            let below = 1u64 << interval.ilog2().min(30);
            return Err(Error::wrong(format!(
                "sample_interval is {interval} bytes; give a power of two of at most 1 GiB, such as {below}, or 0"
            )));
        }
        if !(2..=MAX_STACK_DEPTH).contains(stack_depth) {
            let message = format!("stack_depth is {stack_depth}; give 2 to {MAX_STACK_DEPTH} frames");
            return Err(Error::wrong(message));
        }
        if self.stream.is_some() && self.schedule.is_some() {
            return Err(Error::wrong("a streamed capture cannot pause; leave out `stream` or `schedule`"));
        }
        if self.stream.is_some() && (*enabled == Enabled::State || !skip_actions.is_empty()) {
            let why = "a streamed capture needs the whole history; leave out `stream`, or `enabled` and `skip_actions`";
            return Err(Error::wrong(why));
        }
        Ok(())
    }
}

/// The callback for each finished cycle of a schedule.
pub(super) struct TraceReady(pub(super) Box<dyn FnMut(&Snapshot) + Send>);

impl fmt::Debug for TraceReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceReady")
    }
}

impl Builder {
    /// How much is recorded: nothing, live blocks only, or the history as well (default).
    pub fn enabled(self, enabled: Enabled) -> Self {
        self.set(|plan| plan.settings.enabled = enabled)
    }

    /// Which records get a stack (default: allocations).
    pub fn context(self, context: StackContext) -> Self {
        self.set(|plan| plan.settings.context = context)
    }

    /// Which frames of a stack are kept (default: Rust code only).
    pub fn stacks(self, stacks: StackKind) -> Self {
        self.set(|plan| plan.settings.stacks = stacks)
    }

    /// Length of each device's log, a ring buffer, in records (default: 1,048,576). A record is one alloc or one free
    /// and takes 32 bytes, or 40 on CUDA devices and with stacks of frees. Scopes have a second log of the same length.
    /// A PyTorch pickle has two entries for a free. The peak and the counters stay exact when records are overwritten.
    pub fn max_entries(self, records: usize) -> Self {
        self.set(|plan| plan.settings.max_entries = records)
    }

    /// CPU only: the threshold, which is the smallest block that is recorded. It is a number of bytes or text like
    /// `"64 KiB"`: a power of two, or 0 for every block (default: 1 KiB, or 0 with
    /// [`sample_interval`](Builder::sample_interval)). Smaller blocks are counted in a row of their own, without
    /// stacks.
    ///
    /// The default leaves out about 70 % of the allocations of a candle training step, which hold less than 0.1 % of
    /// its memory.
    pub fn min_size(self, size: impl IntoBytes) -> Self {
        self.take(size.into_bytes(), |plan, bytes| (plan.settings.min_size, plan.min_size_is_set) = (bytes, true))
    }

    /// CPU only: Poisson sampling. All blocks of at least `interval` bytes are recorded. Smaller blocks are sampled, on
    /// average one for each `interval` allocated bytes. The interval is a number of bytes or text like `"512 KiB"`: a
    /// power of two up to 1 GiB, or 0 to record every block (default). Use it when many small blocks make recording
    /// slow; a block that is not sampled costs nanoseconds.
    ///
    /// * **Totals and curves** are unbiased estimates and marked as such: each sampled block counts with its weight,
    ///   the inverse of its probability to be recorded ([`Sampling`](crate::snapshot::Sampling)).
    /// * **Live bytes** are counted exactly ([`Counted`](crate::snapshot::Counted)) whenever a block is recorded, and
    ///   the peak is the highest of these counts. Between two recorded blocks it may have been higher, by about an
    ///   interval per thread.
    /// * **Tables** distribute the counted bytes among their rows by the weights of the sample. A row that holds a
    ///   hundred intervals is right to about a tenth; a row that holds less than one may be missing.
    /// * **Small blocks from before the recording** cannot be distinguished from blocks that were not sampled; only
    ///   their sum at the start is known.
    ///
    /// Without [`min_size`](Builder::min_size), blocks of every size are sampled. CUDA memory is always recorded
    /// completely, and [`measure`](fn@crate::measure) and the assertions see every block.
    pub fn sample_interval(self, interval: impl IntoBytes) -> Self {
        self.take(interval.into_bytes(), |plan, bytes| plan.settings.sample_interval = NonZeroU64::new(bytes))
    }

    /// The most frames of a stack that are kept, 2 to 256 (default: 128). A deeper stack keeps half of them at each
    /// end.
    pub fn stack_depth(self, frames: usize) -> Self {
        self.set(|plan| plan.settings.stack_depth = frames)
    }

    /// The rules that attribution uses to recognize frameworks (default: candle, cudarc and their dependencies).
    pub fn rules(self, rules: Rules) -> Self {
        self.set(|plan| plan.settings.rules = rules)
    }

    /// Records only this device (default: all).
    pub fn device(self, device: Device) -> Self {
        self.set(|plan| plan.settings.device = Some(device))
    }

    /// Leaves these records out of the log (default: none). Counters and the peak stay exact. A log without frees or
    /// without allocs cannot be replayed, and viewers show it as it is.
    pub fn skip_actions(self, actions: impl IntoIterator<Item = Action>) -> Self {
        self.set(|plan| plan.settings.skip_actions = actions.into_iter().collect())
    }

    /// Records uses of device memory (default: off), that is, which kernel, copy or fill used each block first and
    /// last. Then the report says what could be freed earlier, and what the peak would be.
    pub fn uses(self, on: bool) -> Self {
        self.set(|plan| plan.settings.uses = on)
    }

    /// Records by steps, like torch.profiler's `schedule`. In each cycle `wait` steps are not recorded, `warmup` steps
    /// are recorded and discarded, and `active` steps are kept. There are `repeat` cycles; 0 repeats until the session
    /// ends. [`Session::step`] ends a step.
    ///
    /// Blocks allocated in a warm-up step are known, with their stacks, when the active steps begin.
    pub fn schedule(self, wait: u64, warmup: u64, active: u64, repeat: u64) -> Self {
        self.take(Schedule::new(wait, warmup, active, repeat), |plan, schedule| plan.schedule = Some(schedule))
    }

    /// Sets a callback for [`Session::step`], which calls it with the snapshot of each finished cycle of the
    /// [`schedule`](Builder::schedule). If the session ends during the active steps of a cycle, the callback is called
    /// at that moment. Without a schedule, the whole session is one cycle.
    pub fn on_trace_ready(mut self, ready: impl FnMut(&Snapshot) + Send + 'static) -> Self {
        self.on_trace_ready = Some(TraceReady(Box::new(ready)));
        self
    }

    /// Streams the recording to a capture while the program runs. The capture survives whatever ends the program, even
    /// `kill -9`. [`open`](crate::open) reads it. In the path, `%e`, `%h`, `%p`, `%r` and `%t` stand for program, host,
    /// pid, rank and seconds since 1970.
    ///
    /// One of memtrace's threads writes about ten times a second; recorded threads never wait for the disk. If more
    /// than [`max_entries`](Builder::max_entries) records arrive between two writes, the capture misses the oldest of
    /// these and says how many it misses.
    pub fn stream(self, path: impl Into<String>) -> Self {
        self.set(|plan| plan.stream = Some(path.into()))
    }

    /// For a program that runs for days: the most bytes that all files of the [`stream`](Builder::stream) take
    /// together. It is a number of bytes or text like `"2 GiB"`. Without a stream it does nothing.
    ///
    /// The stream is then written in parts: `run.1.memtrace`, `run.2.memtrace`, … beside `run.memtrace`, which names
    /// the stream. When the budget is used up, the oldest part is deleted. [`open`](crate::open) reads all parts as one
    /// recording, whichever file is given. The log begins with the oldest part. The peak with its blocks, the counters
    /// and the scopes are those of the whole run. `docs/long-runs.md` in the repository has the details.
    pub fn stream_budget(self, bytes: impl IntoBytes) -> Self {
        self.take(bytes.into_bytes(), |plan, bytes| plan.stream_limits.bytes = Some(bytes))
    }

    /// Like [`stream_budget`](Builder::stream_budget), but by time: a part that ended longer ago than this is deleted.
    /// So the log reaches back at least this long, and at most about a quarter longer. If both are set, the limit that
    /// is reached first counts.
    pub fn stream_time(self, time: Duration) -> Self {
        self.set(|plan| plan.stream_limits.time = Some(time))
    }

    /// The file for dumps: snapshots that the other `dump_` options request, or one at the end if none of them is set.
    /// The extension chooses the format, see [`Snapshot::write`]. `%e`, `%h`, `%p`, `%r` and `%t` stand for program,
    /// host, pid, rank and seconds since 1970. An existing file is kept; the new one gets a number. A relative path
    /// starts in the folder in which the session began.
    ///
    /// Without this option, dumps are pickles under `memtrace` in cargo's target folder, or else in the working
    /// directory. The newest ten are kept.
    pub fn dump_to(self, path: impl Into<String>) -> Self {
        self.set(|plan| plan.dumps.path = Some(path.into()))
    }

    /// Writes a snapshot when the session ends or the process exits, also on [`std::process::exit`].
    pub fn dump_at_end(self, on: bool) -> Self {
        self.set(|plan| plan.dumps.at_end = on)
    }

    /// Writes a snapshot on the first panic, before unwinding. It shows the state before the panic message was printed,
    /// because the message and its backtrace take memory.
    pub fn dump_on_panic(self, on: bool) -> Self {
        self.set(|plan| plan.dumps.on_panic = on)
    }

    /// On the first refused allocation, writes a snapshot from inside the failing call and a post-mortem to stderr: who
    /// held the memory, and what would help. If too little memory is left, or the file cannot be written, the next
    /// refusal tries again. For this option, 288 MiB of address space are reserved and never touched.
    ///
    /// By default only the post-mortem is written, if enough memory is left for it. `false` turns off the post-mortem,
    /// too.
    pub fn dump_on_oom(self, on: bool) -> Self {
        self.set(|plan| plan.dumps.on_oom = Some(on))
    }

    /// Writes a snapshot whenever this signal arrives, such as [`Signal::Usr2`] (feature `signals`). This happens
    /// within a tenth of a second, and several signals within that time count as one. The program's own handler for the
    /// signal still runs.
    pub fn dump_on_signal(self, signal: Signal) -> Self {
        self.take(signal.number(), |plan, signal| plan.dumps.signal = Some(signal))
    }

    fn set(mut self, put: impl FnOnce(&mut SessionPlan)) -> Self {
        put(&mut self.plan);
        self
    }

    fn take<T>(mut self, option: Result<T, Error>, put: impl FnOnce(&mut SessionPlan, T)) -> Self {
        match option {
            Ok(option) => put(&mut self.plan, option),
            Err(error) => self.wrong = self.wrong.or(Some(error)),
        }
        self
    }

    /// Starts the recording. The environment variables `MEMTRACE_*` override these options; the crate's documentation
    /// lists them.
    ///
    /// # Errors
    /// If a session is already active, an option or variable has an invalid value, or the file to stream to cannot be
    /// created.
    pub fn start(self) -> Result<Session, Error> {
        if let Some(error) = self.wrong {
            return Err(error);
        }
        Session::begin(&self.plan, self.on_trace_ready)
    }
}

/// A size: a number of bytes, or text like `"512 MiB"` (see [`parse_bytes`]).
pub trait IntoBytes {
    /// The size in bytes.
    ///
    /// # Errors
    /// If the text is no size, or the number is negative.
    fn into_bytes(self) -> Result<u64, Error>;
}

macro_rules! number_of_bytes {
    ($($number:ty),*) => {$(
        impl IntoBytes for $number {
            fn into_bytes(self) -> Result<u64, Error> {
                u64::try_from(self).map_err(|_| memtrace_core::Error::size(&self.to_string()).into())
            }
        }
    )*};
}
number_of_bytes!(u64, u32, usize, i32);

impl IntoBytes for &str {
    fn into_bytes(self) -> Result<u64, Error> {
        Ok(parse_bytes(self)?)
    }
}

impl IntoBytes for &String {
    fn into_bytes(self) -> Result<u64, Error> {
        Ok(parse_bytes(self)?)
    }
}

impl IntoBytes for memtrace_core::units::Bytes {
    fn into_bytes(self) -> Result<u64, Error> {
        Ok(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_threshold_that_is_no_power_of_two_both_neighbours_are_named_if_there_are_two() {
        let text = |min_size| {
            let settings = Settings { min_size, ..Settings::default() };
            SessionPlan { settings, ..SessionPlan::default() }.check().unwrap_err().to_string()
        };
        assert!(text(1500).ends_with("use 1024 or 2048"), "{}", text(1500));
        assert!(text(u64::MAX).ends_with("use 9223372036854775808"), "{}", text(u64::MAX));
    }
}
