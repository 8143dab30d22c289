//! What to record, in PyTorch's words.

use std::fmt;
use std::num::NonZeroU64;

use super::dumps::Dumps;
use super::outputs::Snapshot;
use super::schedule::Schedule;
use super::signals::signal_number;
use crate::error::Error;
use crate::session::Session;
use crate::snapshot::{Action, Device, Enabled, MAX_INTERVAL, Rules, Settings, StackContext, StackKind};
use crate::units::{MAX_STACK_DEPTH, parse_bytes};

/// Options of a recording; begin with [`builder`](crate::builder), end with [`start`](Builder::start).
///
/// The names are those of `torch.cuda.memory._record_memory_history` where it has them. One default
/// differs: `context` is [`StackContext::Alloc`] here and "all" there.
///
/// ```no_run
/// let session = memtrace::builder().max_entries(100_000).min_size("64 KiB").start()?;
/// # Ok::<(), memtrace::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "nothing is recorded before `start`"]
pub struct Builder {
    plan: Plan,
    on_trace_ready: Option<TraceReady>,
    /// The first option that made no sense; told by `start`.
    wrong: Option<Error>,
}

/// Everything that was asked for, as data.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) settings: Settings,
    /// Somebody said which blocks are too small.
    pub(super) min_size_said: bool,
    pub(super) dumps: Dumps,
    pub(super) stream: Option<String>,
    /// The environment named the stream's file.
    pub(super) stream_from_outside: bool,
    pub(super) schedule: Option<Schedule>,
    /// Stacks are compared with libgcc's.
    pub(super) check_stacks: bool,
    /// Which sample is drawn.
    pub(super) sample_seed: u64,
}

impl Plan {
    /// Where the environment wants the recording: written at the end and on a panic; a capture is
    /// streamed, and then nothing is written besides unless the code named a place for that.
    pub(super) fn output(&mut self, pattern: &str) {
        if pattern.ends_with(".memtrace") {
            (self.stream, self.stream_from_outside) = (Some(pattern.to_owned()), true);
            if self.dumps.path.is_none() {
                (self.dumps.at_end, self.dumps.on_panic) = (false, false);
            }
        } else {
            self.dumps.path = Some(pattern.to_owned());
            (self.dumps.at_end, self.dumps.on_panic) = (true, true);
        }
    }

    /// What nobody said follows from what was said: a sample is one of all blocks.
    pub(super) fn settle(&mut self) {
        if self.settings.sample_interval.is_some() && !self.min_size_said {
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
        if let Some(sample_interval) = sample_interval
            && !(sample_interval.is_power_of_two() && sample_interval.get() <= MAX_INTERVAL)
        {
            let below = 1u64 << sample_interval.ilog2().min(30);
            return Err(Error::wrong(format!(
                "sample_interval is {sample_interval} bytes; give a power of two of at most 1 GiB, such as {below}, or 0"
            )));
        }
        if !(2..=MAX_STACK_DEPTH).contains(stack_depth) {
            let message = format!("stack_depth is {stack_depth}; give 2 to {MAX_STACK_DEPTH} frames");
            return Err(Error::wrong(message));
        }
        if self.stream.is_some() && self.schedule.is_some() {
            return Err(Error::wrong("a streamed capture has no pauses; leave out `stream` or `schedule`"));
        }
        if self.stream.is_some() && (*enabled == Enabled::State || !skip_actions.is_empty()) {
            let why = "a streamed capture needs the whole history; leave out `stream`, or `enabled` and `skip_actions`";
            return Err(Error::wrong(why));
        }
        Ok(())
    }
}

/// What is called with each finished snapshot of a schedule.
pub(super) struct TraceReady(pub(super) Box<dyn FnMut(&Snapshot) + Send>);

impl fmt::Debug for TraceReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceReady")
    }
}

impl Builder {
    /// How much is recorded: nothing, the live blocks, or the history as well (default).
    pub fn enabled(mut self, enabled: Enabled) -> Self {
        self.plan.settings.enabled = enabled;
        self
    }

    /// Whose stacks are kept (default: of allocations).
    pub fn context(mut self, context: StackContext) -> Self {
        self.plan.settings.context = context;
        self
    }

    /// Which frames are kept (default: Rust's).
    pub fn stacks(mut self, stacks: StackKind) -> Self {
        self.plan.settings.stacks = stacks;
        self
    }

    /// How many records the log holds before it overwrites its oldest ones (default: 1,048,576, of
    /// 32 bytes each, 40 on CUDA devices or with the stacks of frees); entering and leaving scopes fills a second log of the same length. One record is one alloc or one free; in a PyTorch pickle a free becomes two
    /// entries. The peak and the counters stay exact whatever is overwritten.
    pub fn max_entries(mut self, records: usize) -> Self {
        self.plan.settings.max_entries = records;
        self
    }

    /// CPU only: the smallest block that is recorded, as bytes or text like `"64 KiB"`; a power of
    /// two, or 0 for every block (default: 1 KiB, or 0 with [`sample_interval`](Builder::sample_interval)). Smaller blocks are counted, without stacks, in a
    /// row of their own.
    ///
    /// The default leaves out about 70 % of the allocations of a candle training step, which hold
    /// less than 0.1 % of its memory.
    pub fn min_size(self, size: impl IntoBytes) -> Self {
        self.take(size.into_bytes(), |plan, bytes| (plan.settings.min_size, plan.min_size_said) = (bytes, true))
    }

    /// CPU only: records a sample of the blocks that are smaller than this, one in so many allocated bytes on average,
    /// and every larger one; as bytes or text like `"512 KiB"`, a power of two of at most 1 GiB, or 0 for every block
    /// (default). For programs whose many small blocks make recording slow: one that is left out costs nanoseconds.
    ///
    /// Each block of the sample stands for as many as it takes for one of its size to be recorded
    /// ([`Sampling`](crate::snapshot::Sampling)), so what was allocated in all, and curves, are unbiased estimates, and marked
    /// as such. What is live is counted, exactly ([`Counted`](crate::snapshot::Counted)), whenever a block is recorded,
    /// and the most that was counted is the peak: it may have been higher between two recorded blocks, by what each
    /// thread allocated there, about an interval. The sample shares out the counted bytes among lines, scopes and
    /// whatever else has a table. These shares are good where they are large: a line that holds a hundred intervals is
    /// right to about a tenth, one that holds less than an interval may be missing. Small blocks from before the
    /// recording cannot be told from those that were left out: of them is known how many bytes there were then.
    ///
    /// Without [`min_size`](Builder::min_size) the sample is one of all blocks, however small. Memory of CUDA devices is
    /// always recorded as a whole, and [`measure`](fn@crate::measure) and the assertions see every block.
    pub fn sample_interval(self, interval: impl IntoBytes) -> Self {
        self.take(interval.into_bytes(), |plan, bytes| plan.settings.sample_interval = NonZeroU64::new(bytes))
    }

    /// How many frames are kept of a stack, 2 to 256 (default: 128). A deeper stack keeps its
    /// innermost and its outermost half.
    pub fn stack_depth(mut self, frames: usize) -> Self {
        self.plan.settings.stack_depth = frames;
        self
    }

    /// What attribution knows of frameworks (default: candle, cudarc and what they are made of).
    pub fn rules(mut self, rules: Rules) -> Self {
        self.plan.settings.rules = rules;
        self
    }

    /// Records this device only (default: all).
    pub fn device(mut self, device: Device) -> Self {
        self.plan.settings.device = Some(device);
        self
    }

    /// Leaves log entries out (default: none). Counters and the peak are not affected; a log
    /// without frees or without allocs cannot be replayed, and viewers show it accordingly.
    pub fn skip_actions(mut self, actions: impl IntoIterator<Item = Action>) -> Self {
        self.plan.settings.skip_actions = actions.into_iter().collect();
        self
    }

    /// Records by steps, as torch.profiler's `schedule`: of each cycle `wait` steps are not recorded,
    /// `warmup` steps are recorded and thrown away, `active` steps are kept; `repeat` cycles, 0 for as
    /// many as there are. [`Session::step`] ends a step.
    ///
    /// What was allocated in a warm-up step is known, with its stack, when the active steps begin.
    pub fn schedule(self, wait: u64, warmup: u64, active: u64, repeat: u64) -> Self {
        self.take(Schedule::new(wait, warmup, active, repeat), |plan, schedule| plan.schedule = Some(schedule))
    }

    /// Called with the snapshot of each finished cycle of the [`schedule`](Builder::schedule), by
    /// [`Session::step`]; at the session's end too if that comes amid active steps. Without a schedule
    /// the session is one cycle.
    pub fn on_trace_ready(mut self, ready: impl FnMut(&Snapshot) + Send + 'static) -> Self {
        self.on_trace_ready = Some(TraceReady(Box::new(ready)));
        self
    }

    /// Appends what is recorded to a capture while the program runs, so that it is there whatever ends
    /// the program, `kill -9` included; [`read_capture`](crate::read_capture) reads it. `%e`, `%h`, `%p`,
    /// `%r`, `%t` in the path stand for program, host, pid, rank and seconds since 1970.
    ///
    /// It is written about ten times a second by a thread of its own; recorded threads never wait for
    /// the disk. If more than [`max_entries`](Builder::max_entries) records come in between, the oldest
    /// are missing in the capture, and it says so.
    pub fn stream(mut self, path: impl Into<String>) -> Self {
        self.plan.stream = Some(path.into());
        self
    }

    /// Where snapshots go that are written without being called for (see the `dump_` options; at the end if none of
    /// them is given); its end says the format, see [`Snapshot::write`]. `%e`, `%h`, `%p`, `%r`, `%t` stand for program, host,
    /// pid, rank and seconds since 1970. A name that is taken gets a number. What is relative begins in the folder in which
    /// the session began, wherever the program has gone since. Without it they are pickles below `memtrace` in cargo's target
    /// folder, or else here, of which the newest ten are kept.
    pub fn dump_to(mut self, path: impl Into<String>) -> Self {
        self.plan.dumps.path = Some(path.into());
        self
    }

    /// Writes a snapshot when the session ends, at the latest when the process exits in order, be it by
    /// [`std::process::exit`].
    pub fn dump_at_end(mut self, on: bool) -> Self {
        self.plan.dumps.at_end = on;
        self
    }

    /// Writes a snapshot on the first panic, before anything is unwound, as things were before its message. What the
    /// message takes (a backtrace reads the debug information of the program) is in later snapshots, as all that the
    /// program does.
    pub fn dump_on_panic(mut self, on: bool) -> Self {
        self.plan.dumps.on_panic = on;
        self
    }

    /// Writes a snapshot from inside the first allocation that fails, and explains it on the standard error: who held the
    /// memory, and what would help. Of a later one if too little memory was left for it, or its file could not be written.
    /// 288 MiB of address space are kept aside for it, which are never touched.
    ///
    /// Where nobody says anything the first one is explained, too, if there is memory left for that, and no file is written.
    /// `false` keeps it quiet.
    pub fn dump_on_oom(mut self, on: bool) -> Self {
        self.plan.dumps.on_oom = Some(on);
        self
    }

    /// Writes a snapshot at each signal of this kind, such as `"USR2"` (feature `signals`). What the program itself does at
    /// that signal is done besides. It comes within a tenth of a second, and signals that come in that time are one.
    pub fn dump_on_signal(self, signal: &str) -> Self {
        self.take(signal_number(signal), |plan, signal| plan.dumps.signal = Some(signal))
    }

    fn take<T>(mut self, option: Result<T, Error>, put: impl FnOnce(&mut Plan, T)) -> Self {
        match option {
            Ok(option) => put(&mut self.plan, option),
            Err(error) => self.wrong = self.wrong.or(Some(error)),
        }
        self
    }

    /// Begins to record. Variables `MEMTRACE_*` of the environment come before what was said here; they
    /// are listed in the crate's documentation.
    ///
    /// # Errors
    /// If a session is under way already, an option or variable makes no sense, or the file to stream to
    /// cannot be made; the message says what would.
    pub fn start(self) -> Result<Session, Error> {
        if let Some(error) = self.wrong {
            return Err(error);
        }
        Session::begin(&self.plan, self.on_trace_ready)
    }
}

/// A size: a number of bytes, or text like `"512 MiB"` as [`parse_bytes`] reads it.
pub trait IntoBytes {
    /// The number of bytes.
    ///
    /// # Errors
    /// If text cannot be read as a size.
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

impl IntoBytes for crate::units::Bytes {
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
            Plan { settings, ..Plan::default() }.check().unwrap_err().to_string()
        };
        assert!(text(1500).ends_with("use 1024 or 2048"), "{}", text(1500));
        assert!(text(u64::MAX).ends_with("use 9223372036854775808"), "{}", text(u64::MAX));
    }
}
