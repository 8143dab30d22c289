//! A recording under way, and what comes out of it.
//!
//! With `assertion` the only part that sees both sides: it drives the recorder and hands finished
//! data to analysis and export.

mod background;
mod builder;
mod captures;
mod collect;
mod dump;
mod dumps;
mod env;
mod listen;
mod missed;
mod operators;
mod output;
mod outputs;
mod pending;
mod process;
mod recording;
mod refusal;
mod schedule;
mod signals;
mod since;
mod stream;
mod writing;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use builder::{Builder, IntoBytes};
use builder::{Plan, TraceReady};
pub use captures::{parse_capture, read_capture};
pub(crate) use collect::measured_snapshot;
pub use operators::{Operators, read_operators};
pub(crate) use output::write_new;
pub use outputs::{Report, Snapshot, output_dir, trace_handler};
use recording::{Recording, Shared};
use schedule::{Phase, Schedule, Turn};
use since::Since;
use stream::Stream;

use crate::device::IntoDevice;
use crate::error::{Error, Kind};
use crate::hook::cuda;
use crate::record::guard::{self, Own};
use crate::record::{fork, heap, recorder, set_sample_seed, unwind};
use crate::snapshot::{Device, Enabled, MemoryStats, Settings};
use crate::write_errors;

/// A recording under way. Dropping it ends the recording.
///
/// One at a time in a process; one may follow another.
#[derive(Debug)]
#[must_use = "the recording ends when its session is dropped; bind it: `let session = …`"]
pub struct Session {
    recording: Shared,
    cycle: Mutex<Cycle>,
    ended: bool,
}

/// Where the session is in its schedule.
#[derive(Debug)]
struct Cycle {
    schedule: Option<Schedule>,
    step: u64,
    on_trace_ready: Option<TraceReady>,
}

impl Cycle {
    fn phase(&self) -> Phase {
        self.schedule.map_or(Phase::Active, |schedule| schedule.phase(self.step))
    }

    fn deliver(&mut self, recording: &Recording) {
        if let Some(TraceReady(ready)) = &mut self.on_trace_ready {
            ready(&recording.snapshot());
        }
    }
}

/// Begins to record with the default options; [`builder`] has the others.
///
/// # Errors
/// If a session is under way already, or a variable `MEMTRACE_*` makes no sense.
pub fn start() -> Result<Session, Error> {
    builder().start()
}

/// Options of a recording to come.
pub fn builder() -> Builder {
    Builder::default()
}

/// Records until the process ends, if the environment asks for it by `MEMTRACE=1` or `MEMTRACE_OUT`; else does nothing.
/// What was recorded is written at the end and on a panic, to `MEMTRACE_OUT` if that is set. True if it
/// records.
///
/// ```
/// #[global_allocator]
/// static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
///
/// fn main() -> Result<(), memtrace::Error> {
///     memtrace::init()?;
///     Ok(())
/// }
/// ```
///
/// # Errors
/// As [`start`].
pub fn init() -> Result<bool, Error> {
    static KEPT: Mutex<Option<Session>> = Mutex::new(None);
    if !*Own::make(env::asks).as_ref().map_err(Error::clone)? {
        return Ok(false);
    }
    let session = builder().dump_at_end(true).dump_on_panic(true).start()?;
    *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    Ok(true)
}

impl Session {
    fn begin(plan: &Plan, on_trace_ready: Option<TraceReady>) -> Result<Self, Error> {
        fork::watch();
        if recorder::was_forked() {
            return Err(Error::from(Kind::Forked));
        }
        let begun = Own::make(|| begin(plan));
        let (recording, schedule) = begun.as_ref().map_err(Error::clone)?;
        // Not memtrace's own work: others may free what stands in the process's tables.
        if recording.dumps.on_panic {
            dump::hook_panics();
        }
        if let Some(Err(error)) = recording.dumps.signal.map(signals::listen) {
            let _ = Own::make(|| recording::end(recording));
            return Err(error);
        }
        let cycle = Mutex::new(Cycle { schedule: *schedule, step: 0, on_trace_ready });
        Ok(Self { recording: recording::share(recording), cycle, ended: false })
    }

    /// What was recorded so far; the recording goes on. Resolves symbols: about a second for a
    /// program of candle's size, less when repeated.
    ///
    /// In a process that was forked off after the session began it is empty.
    pub fn snapshot(&self) -> Snapshot {
        self.recording.snapshot()
    }

    /// Ends a step of the [`schedule`](Builder::schedule): what it says for the next one begins. After
    /// the last active step of a cycle [`on_trace_ready`](Builder::on_trace_ready) is called from here.
    /// Without a schedule it does nothing.
    pub fn step(&self) {
        if recorder::was_forked() {
            return;
        }
        let mut cycle = self.cycle.lock().unwrap_or_else(PoisonError::into_inner);
        let before = cycle.phase();
        cycle.step += 1;
        let turn = Turn::between(before, cycle.phase());
        let mut delivered = Ok(());
        if before == Phase::LastActive && cycle.schedule.is_some() {
            delivered = catch_unwind(AssertUnwindSafe(|| cycle.deliver(&self.recording)));
        }
        self.turn(turn);
        drop(cycle);
        if let Err(panic) = delivered {
            resume_unwind(panic);
        }
    }

    fn turn(&self, turn: Turn) {
        let _own = guard::own_work();
        match turn {
            Turn::Nothing => {}
            Turn::On => self.recording.switch(true),
            Turn::Off => self.recording.switch(false),
            Turn::Anew => self.recording.begin_anew(),
        }
    }

    /// Writes what was recorded so far to the file of the [`stream`](Builder::stream), which otherwise happens about ten
    /// times a second: before something that may not return. Does nothing without a stream. A file that cannot be
    /// written is said on stderr, and tried again.
    pub fn flush(&self) {
        // The file is the parent's.
        if recorder::was_forked() {
            return;
        }
        let _own = guard::own_work();
        self.recording.flush();
    }

    /// What was asked for.
    pub fn settings(&self) -> &Settings {
        &self.recording.settings
    }

    /// Ends the recording as dropping does, and says whether everything was written that was to be.
    ///
    /// # Errors
    /// If the rest of a streamed capture cannot be written; what it holds by then is good.
    pub fn end(mut self) -> Result<(), Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.ended = true;
        let cycle = self.cycle.get_mut().unwrap_or_else(PoisonError::into_inner);
        let amid = matches!(cycle.phase(), Phase::Active | Phase::LastActive);
        let mut delivered = Ok(());
        if amid && !recorder::was_forked() && !std::thread::panicking() {
            delivered = catch_unwind(AssertUnwindSafe(|| cycle.deliver(&self.recording)));
        }
        let ended = Own::make(|| recording::end(&self.recording)).as_ref().map_err(Error::clone).copied();
        if let Err(panic) = delivered {
            resume_unwind(panic);
        }
        ended
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.ended
            && let Err(error) = self.finish()
        {
            say(&error.to_string());
        }
    }
}

/// As memtrace's own work.
fn begin(plan: &Plan) -> Result<(Shared, Option<Schedule>), Error> {
    let mut plan = plan.clone();
    env::misspelt().iter().for_each(|message| say(message));
    env::apply(&mut plan)?;
    plan.settle();
    // What is relative is so to where the program is now. Without such a folder it stays as it is.
    plan.dumps.folder = std::env::current_dir().unwrap_or_default();
    plan.check()?;
    plan.dumps.prepare()?;
    if plan.dumps.on_oom != Some(false) {
        heap::on_refusal(refusal::dump_out_of_memory);
    }
    if sees_nothing(&plan.settings) {
        say(&Error::from(Kind::NotInstalled).to_string());
    }
    let waits = plan.schedule.is_some_and(|schedule| schedule.phase(0) == Phase::Wait);
    if recorder::is_taken() {
        return Err(Error::from(Kind::AlreadyRecording));
    }
    unwind::check_stacks(plan.check_stacks);
    set_sample_seed(plan.sample_seed);
    let stream = plan.stream.as_deref().map(|pattern| open_stream(&plan, pattern)).transpose()?;
    let recording = Recording::begin(&plan.settings, waits, stream, &plan.dumps)?;
    if recording.streams()
        && let Err(error) = append_in_background(&recording)
    {
        let _ = recording::end(&recording);
        return Err(error);
    }
    if recording.streams() || recording.dumps.at_end {
        dump::at_exit();
    }
    Ok((recording, plan.schedule))
}

/// Neither the heap, which is to be recorded, nor a GPU.
fn sees_nothing(settings: &Settings) -> bool {
    let wants_heap = settings.enabled != Enabled::Off && settings.device.is_none_or(|device| device == Device::Cpu);
    wants_heap && !guard::allocator_is_installed() && !cuda::is_loaded()
}

/// A new file. One that was named from outside gets a number if it is there already: a second session
/// of the program must not fail for that.
fn open_stream(plan: &Plan, pattern: &str) -> Result<Stream, Error> {
    let path = plan.dumps.folder.join(process::expand(pattern, &process::this_process()));
    let create = |path: &Path| {
        let made = Stream::create(path, &plan.settings, Since::now().unix_us);
        made.map_err(|error| error.and("nothing is recorded"))
    };
    if !plan.stream_from_outside {
        return create(&path);
    }
    output::beside(&path, create)
}

fn append_in_background(recording: &Arc<Recording>) -> Result<(), Error> {
    let shared = recording::share(recording);
    let work = move || {
        let (mut began, mut watch) = (Instant::now(), background::Watch::new());
        while shared.flush() && !watch.is_left_alone() {
            // At least a moment, in which others get at the stream: a session that ends, a panic.
            std::thread::sleep(stream::INTERVAL.saturating_sub(began.elapsed()).max(Duration::from_millis(1)));
            began = Instant::now();
        }
    };
    background::spawn(c"memtrace-stream", work).map_err(Error::from)
}

/// A message to whoever runs the program. That it cannot be written must not end the program.
pub(crate) fn say(message: &str) {
    let _own = guard::own_work();
    let _limit = write_errors::errors_only();
    let _ = writeln!(std::io::stderr(), "memtrace: {message}");
}

/// The counters of a device; zeros if it is not being recorded.
///
/// ```no_run
/// let session = memtrace::start()?;
/// let stats = memtrace::stats(memtrace::Device::Cpu);
/// println!("{} now, {} at most", stats.allocated_bytes.current, stats.allocated_bytes.peak);
/// # Ok::<(), memtrace::Error>(())
/// ```
pub fn stats(device: impl IntoDevice) -> MemoryStats {
    fork::watch();
    recorder::stats(device.into_device()).unwrap_or_default()
}

/// Sets the peaks in [`stats`] to the current values, as `torch.cuda.reset_peak_memory_stats` does.
/// The peak of the snapshot, with what was live at it, stays that of the whole recording.
pub fn reset_peak(device: impl IntoDevice) {
    fork::watch();
    recorder::reset_peak(device.into_device());
}

/// Calls `call` when the CUDA driver has been started, once, on the thread that started it: to record programs
/// that may not use CUDA at all. False if that will not be seen, because the program has memtrace in it.
#[doc(hidden)]
pub fn on_cuda_start(call: fn()) -> bool {
    crate::hook::cuda::on_cuda_start(call)
}

/// Is anything being recorded?
pub fn is_recording() -> bool {
    recorder::is_recording()
}
