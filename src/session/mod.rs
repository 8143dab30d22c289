//! Session lifecycle: starts a recording, takes snapshots of it, streams and dumps it, ends it.
//!
//! Only this module and `assertion` know both sides: they drive the recorder and hand finished data to analysis and
//! export. Everything that must be finished when the session *or the process* ends is in
//! [`Recording`](recording::Recording). The session shares it with memtrace's own threads, the panic hook and the
//! `atexit` handler.

mod announce;
mod apart;
#[cfg(target_os = "linux")]
mod autostart;
mod background;
mod builder;
mod captures;
mod collect;
mod dump;
mod dumps;
mod env;
mod files;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
mod host;
mod kernel_thread;
mod mappings;
mod missed;
mod numbers;
mod operators;
mod outputs;
mod pending;
mod process;
mod recording;
mod refusal;
mod schedule;
mod signals;
mod spawn;
mod stream;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

pub use builder::{Builder, IntoBytes};
use builder::{SessionPlan, TraceReady};
pub use captures::open;
pub(crate) use collect::measured_snapshot;
pub(crate) use files::{base_dir, write_new};
use memtrace_core::export::file;
use memtrace_core::snapshot::{Device, Enabled, MemoryStats, Settings};
use memtrace_core::visible;
use missed::RecordingStart;
pub use operators::{Operators, read_operators};
pub use outputs::{RenderedReport, Snapshot, output_dir, trace_handler};
use recording::{Recording, SharedRecording};
use schedule::{Phase, Schedule, Transition};
pub use signals::Signal;
use stream::CaptureStream;

use crate::device::IntoDevice;
use crate::error::{Error, NOT_INSTALLED};
use crate::hook::cuda;
use crate::record::{Leaves, gates, guard, heap, own, recorder, set_sample_seed, unwind};
use crate::write_errors;

/// An active recording. Dropping it ends the recording.
///
/// A process has at most one session at a time; sessions may follow one another.
#[derive(Debug)]
#[must_use = "the recording ends when its session is dropped; bind it: `let session = …`"]
pub struct Session {
    recording: SharedRecording,
    cycle: Mutex<Cycle>,
    ended: bool,
    /// True if `cargo memtrace run` began the recording; it then lasts until the process ends.
    is_shared: bool,
}

/// The session's position in its schedule.
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

    /// Calls the user's callback. A panic in it is returned, so that the caller can restore its state before it resumes
    /// the panic.
    fn deliver(&mut self, recording: &Recording) -> thread::Result<()> {
        let Some(TraceReady(ready)) = &mut self.on_trace_ready else { return Ok(()) };
        catch_unwind(AssertUnwindSafe(|| ready(&recording.snapshot())))
    }
}

/// Starts a recording with the default options. [`builder`] sets others.
///
/// # Errors
/// If a session is already active, or a `MEMTRACE_*` variable has an invalid value.
pub fn start() -> Result<Session, Error> {
    builder().start()
}

/// Options for a recording; [`Builder::start`] starts it.
pub fn builder() -> Builder {
    Builder::default()
}

/// Records until the process ends if the environment asks for it, with `MEMTRACE=1` or `MEMTRACE_OUT`; otherwise does
/// nothing. Writes a snapshot at the end and on a panic, to `MEMTRACE_OUT` if that is set. Returns whether it records.
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
/// Those of [`start`].
pub fn init() -> Result<bool, Error> {
    static KEPT: Mutex<Option<Session>> = Mutex::new(None);
    if !own(env::asks)? {
        return Ok(false);
    }
    let session = builder().dump_at_end(true).dump_on_panic(true).start()?;
    // If a session began before `main`, it is in `KEPT` already and stays there.
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.get_or_insert(session);
    Ok(true)
}

impl Session {
    fn begin(plan: &SessionPlan, on_trace_ready: Option<TraceReady>) -> Result<Self, Error> {
        if let Some(recording) = own(shared) {
            let cycle = Mutex::new(Cycle { schedule: None, step: 0, on_trace_ready: None });
            return Ok(Self { recording, cycle, ended: false, is_shared: true });
        }
        // Done before the recording begins, and outside own work: other code may replace the panic hook, and then frees
        // this hook's memory.
        dump::hook_panics();
        let (recording, schedule) = own(|| begin(plan))?;
        // Outside own work as well, because other code may free the table that contains the signal handler.
        if let Some(Err(error)) = recording.dumps.signal.map(signals::listen) {
            let _ = own(|| recording::end(&recording));
            return Err(error);
        }
        let cycle = Mutex::new(Cycle { schedule, step: 0, on_trace_ready });
        Ok(Self { recording, cycle, ended: false, is_shared: false })
    }

    /// Everything recorded so far; the recording continues. Resolves symbols, which takes about a second for a program
    /// of candle's size and less when repeated.
    ///
    /// In a child process forked after the session began, the snapshot is empty.
    pub fn snapshot(&self) -> Snapshot {
        self.recording.snapshot()
    }

    /// Ends a step of the [`schedule`](Builder::schedule) and enters the next one. After the last active step of a
    /// cycle it calls [`on_trace_ready`](Builder::on_trace_ready). Without a schedule it does nothing.
    pub fn step(&self) {
        if recorder::was_forked() {
            return;
        }
        let mut cycle = self.cycle.lock().unwrap_or_else(PoisonError::into_inner);
        let before = cycle.phase();
        cycle.step += 1;
        let transition = Transition::between(before, cycle.phase());
        let is_over = before == Phase::LastActive && cycle.schedule.is_some();
        let delivered = if is_over { cycle.deliver(&self.recording) } else { Ok(()) };
        own(|| match transition {
            Transition::Stay => {}
            Transition::Start => self.recording.switch(true),
            Transition::Stop => self.recording.switch(false),
            Transition::Restart => self.recording.restart(),
        });
        drop(cycle);
        delivered.unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// Writes everything recorded so far to the file of the [`stream`](Builder::stream), which otherwise happens about
    /// ten times a second. Call it before something that may not return. Does nothing without a stream. A write error
    /// is reported on stderr, and the next flush tries again.
    pub fn flush(&self) {
        // A forked child must not write to its parent's file.
        if recorder::was_forked() {
            return;
        }
        own(|| _ = self.recording.flush());
    }

    /// The settings that this session records with.
    pub fn settings(&self) -> &Settings {
        &self.recording.settings
    }

    /// Ends the recording, as dropping the session does, and returns whether the streamed capture is complete.
    ///
    /// # Errors
    /// If the rest of a streamed capture cannot be written. Everything written before is valid.
    pub fn end(mut self) -> Result<(), Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.ended = true;
        if self.is_shared {
            self.flush();
            return Ok(());
        }
        let cycle = self.cycle.get_mut().unwrap_or_else(PoisonError::into_inner);
        let is_active = matches!(cycle.phase(), Phase::Active | Phase::LastActive);
        let is_over = is_active && !recorder::was_forked() && !thread::panicking();
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

/// A recording that began before `main`; the program's sessions share it.
fn shared() -> Option<SharedRecording> {
    #[cfg(target_os = "linux")]
    return autostart::shared();
    #[cfg(not(target_os = "linux"))]
    None
}

fn begin(plan: &SessionPlan) -> Result<(SharedRecording, Option<Schedule>), Error> {
    if recorder::was_forked() || gates::is_stray_child() {
        let why = "cannot record in a child forked from a recording process, or made without fork handlers; fork before recording, or call exec";
        return Err(Error::wrong(why));
    }
    let mut plan = plan.clone();
    if let Some(message) = env::misspelt() {
        say(&message);
    }
    env::apply(&mut plan)?;
    plan.settle();
    plan.settings.rules.set_own_folder(process::own_folder());
    // Relative paths start in the current working directory. If it no longer exists, they stay relative.
    plan.dumps.folder = std::env::current_dir().unwrap_or_default();
    plan.check()?;
    plan.dumps.prepare()?;
    if plan.dumps.on_oom != Some(false) {
        heap::on_refusal(refusal::dump_out_of_memory);
    }
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
    {
        crate::hook::files::read_by(apart::named::READER);
        crate::hook::host::read_by(host::unified_memory);
    }
    if sees_nothing(&plan.settings) {
        print_error(&format!("memtrace: {NOT_INSTALLED}\n"));
    }
    let waits = plan.schedule.is_some_and(|schedule| schedule.phase(0) == Phase::Wait);
    if recorder::is_taken() {
        return Err(Error::already_recording());
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

/// True if the heap is to be recorded but the allocator is not installed, and there is no sign of a GPU either.
fn sees_nothing(settings: &Settings) -> bool {
    let wants_heap = settings.enabled != Enabled::Off && settings.device.is_none_or(|device| device == Device::Cpu);
    wants_heap && !guard::allocator_is_installed() && !cuda::is_loaded()
}

/// Creates the capture's file. If the file exists and its name comes from the environment, the name gets a number,
/// because a second session of the program must not fail for that reason.
fn open_stream(plan: &SessionPlan, pattern: &str) -> Result<CaptureStream, Error> {
    let path = plan.dumps.folder.join(process::expand(pattern, &process::this_process()));
    let create = |path: &Path| {
        let made = CaptureStream::create(path, &plan.settings, plan.stream_limits, RecordingStart::now().unix_us);
        made.as_ref().ok().inspect(|stream| announce::announce(stream.path()));
        made.map_err(|error| error.and("nothing is recorded"))
    };
    if !plan.stream_from_environment {
        return create(&path);
    }
    file::first_free(&path, Error::is_already_exists, create)
}

fn append_in_background(recording: &Arc<Recording>) -> Result<(), Error> {
    let shared = recording::share(recording);
    background::repeat(c"memtrace-stream", stream::INTERVAL, move || shared.flush()).map_err(Error::from)
}

/// Prints a message on stderr as one line. Line breaks and other invisible characters in its names are escaped.
pub(crate) fn say(message: &str) {
    print_error(&format!("memtrace: {}\n", visible::line(message)));
}

/// Like `say`, for the preloaded library.
#[cfg(feature = "preload")]
#[doc(hidden)]
pub fn tell(message: &str) {
    own(|| say(message));
}

/// Prints text on stderr, in which invisible characters of names are escaped already. A failed write must not end the
/// program.
fn print_error(text: &str) {
    let _limit = write_errors::errors_only();
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The counters of a device; zeros if the device is not being recorded.
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

/// Resets the peaks in [`stats`] to the current values, as `torch.cuda.reset_peak_memory_stats` does. The peak in a
/// snapshot, and what was live at it, are still those of the whole recording.
pub fn reset_peak(device: impl IntoDevice) {
    let device = device.into_device();
    own(|| recorder::reset_peak(device));
}

impl Leaves for MemoryStats {}

/// Calls `call` once, on the thread that initializes the CUDA driver. This is for recorders of programs that may not
/// use CUDA at all. False if this copy of memtrace has no hooks, because the program itself contains memtrace.
#[doc(hidden)]
pub fn on_cuda_start(call: fn()) -> bool {
    crate::hook::cuda::on_cuda_start(call)
}

/// Ends the session and waits until memtrace's threads have ended. False if there is no session, in a forked child, and
/// inside own work.
#[cfg(feature = "preload")]
#[doc(hidden)]
pub fn end_with_threads(session: &Mutex<Option<Session>>) -> bool {
    if guard::state() & guard::OWN != 0 || recorder::was_forked() {
        return false;
    }
    let Some(session) = session.lock().unwrap_or_else(PoisonError::into_inner).take() else { return false };
    drop(session);
    own(spawn::wait_for_all);
    true
}

/// Whether a recording is active.
pub fn is_recording() -> bool {
    recorder::is_recording()
}
