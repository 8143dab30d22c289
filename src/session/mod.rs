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
use std::thread;

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
use crate::export::file;
use crate::hook::cuda;
use crate::record::{Leaves, guard, heap, own, recorder, set_sample_seed, unwind};
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

    /// A panic of the program's is to go on when everything is in order.
    fn deliver(&mut self, recording: &Recording) -> thread::Result<()> {
        let Some(TraceReady(ready)) = &mut self.on_trace_ready else { return Ok(()) };
        catch_unwind(AssertUnwindSafe(|| ready(&recording.snapshot())))
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
    if !own(env::asks)? {
        return Ok(false);
    }
    let session = builder().dump_at_end(true).dump_on_panic(true).start()?;
    *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    Ok(true)
}

impl Session {
    fn begin(plan: &Plan, on_trace_ready: Option<TraceReady>) -> Result<Self, Error> {
        let (recording, schedule) = own(|| begin(plan))?;
        // Not memtrace's own work: others may free what stands in the process's tables.
        if recording.dumps.on_panic {
            dump::hook_panics();
        }
        if let Some(Err(error)) = recording.dumps.signal.map(signals::listen) {
            let _ = own(|| recording::end(&recording));
            return Err(error);
        }
        let cycle = Mutex::new(Cycle { schedule, step: 0, on_trace_ready });
        Ok(Self { recording, cycle, ended: false })
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
        let is_over = before == Phase::LastActive && cycle.schedule.is_some();
        let delivered = if is_over { cycle.deliver(&self.recording) } else { Ok(()) };
        own(|| match turn {
            Turn::Nothing => {}
            Turn::On => self.recording.switch(true),
            Turn::Off => self.recording.switch(false),
            Turn::Anew => self.recording.restart(),
        });
        drop(cycle);
        delivered.unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// Writes what was recorded so far to the file of the [`stream`](Builder::stream), which otherwise happens about ten
    /// times a second: before something that may not return. Does nothing without a stream. A file that cannot be
    /// written is said on stderr, and tried again.
    pub fn flush(&self) {
        // The file is the parent's.
        if recorder::was_forked() {
            return;
        }
        own(|| _ = self.recording.flush());
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
        let is_over = amid && !recorder::was_forked() && !thread::panicking();
        let delivered = if is_over { cycle.deliver(&self.recording) } else { Ok(()) };
        let ended = own(|| recording::end(&self.recording));
        delivered.unwrap_or_else(|panic| resume_unwind(panic));
        ended
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.ended
            && let Err(error) = self.finish()
        {
            own(|| say(&error.to_string()));
        }
    }
}

fn begin(plan: &Plan) -> Result<(Shared, Option<Schedule>), Error> {
    if recorder::was_forked() {
        let why = "cannot record in a process that was forked off a recording one; fork first, or exec";
        return Err(Error::wrong(why));
    }
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
        return Err(Kind::AlreadyRecording.into());
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
    file::first_free(&path, Error::is_already_exists, create)
}

fn append_in_background(recording: &Arc<Recording>) -> Result<(), Error> {
    let shared = recording::share(recording);
    background::repeat(c"memtrace-stream", stream::INTERVAL, move || shared.flush()).map_err(Error::from)
}

/// A message to whoever runs the program. That it cannot be written must not end the program.
pub(crate) fn say(message: &str) {
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
    let device = device.into_device();
    own(|| recorder::stats(device)).unwrap_or_default()
}

/// Sets the peaks in [`stats`] to the current values, as `torch.cuda.reset_peak_memory_stats` does.
/// The peak of the snapshot, with what was live at it, stays that of the whole recording.
pub fn reset_peak(device: impl IntoDevice) {
    let device = device.into_device();
    own(|| recorder::reset_peak(device));
}

impl Leaves for MemoryStats {}

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
