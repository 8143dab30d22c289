//! Background threads: detached, with all signals blocked, and every allocation on them is own memory.
//!
//! They are created with `pthread_create`, because `std::thread` allocates on the new thread before it calls the
//! closure.
#![cfg_attr(unix, expect(unsafe_code, reason = "creates threads with C functions"))]

use std::ffi::CStr;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::record::guard;

type ThreadBody = Box<dyn FnOnce() + Send>;

/// How many background threads exist.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Calls `work` at this interval on a new thread until it returns false or all threads of the program have ended.
pub(super) fn repeat(
    name: &'static CStr,
    interval: Duration,
    mut work: impl FnMut() -> bool + Send + 'static,
) -> io::Result<()> {
    spawn(name, move || {
        let mut began = Instant::now();
        let mut watch = ProcessWatch::new();
        while work() && !watch.program_has_ended() {
            // Always sleep a moment, so that an ending session or a panic can take the locks that `work` holds.
            std::thread::sleep(interval.saturating_sub(began.elapsed()).max(Duration::from_millis(1)));
            began = Instant::now();
        }
    })
}

fn spawn(name: &'static CStr, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let _own = guard::own_work();
    start(Box::new(move || {
        guard::set(guard::OWN, true);
        set_name(name);
        RUNNING.fetch_add(1, Ordering::Relaxed);
        // A panic here is a bug of memtrace and must not reach the program.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }))
}

/// Detects that all threads of the program have ended. If the main thread calls `pthread_exit`, the process lives until
/// its last thread ends, and a background thread must not be that thread.
#[derive(Debug)]
struct ProcessWatch {
    checked: Instant,
}

impl ProcessWatch {
    const INTERVAL: Duration = Duration::from_millis(500);

    fn new() -> Self {
        Self { checked: Instant::now() }
    }

    fn program_has_ended(&mut self) -> bool {
        if self.checked.elapsed() < Self::INTERVAL {
            return false;
        }
        self.checked = Instant::now();
        main_thread_has_ended() && others_have_ended()
    }
}

/// In `/proc/self/stat` the main thread's state follows its name, which is in parentheses.
fn main_thread_has_ended() -> bool {
    let stat = std::fs::read("/proc/self/stat").unwrap_or_default();
    let after_name = stat.iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at + 2));
    after_name == Some(&b'Z')
}

/// The main thread stays listed until the process ends.
fn others_have_ended() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count);
    threads <= RUNNING.load(Ordering::Relaxed) + 1
}

#[cfg(target_os = "linux")]
fn set_name(name: &CStr) {
    // SAFETY: the name is a C string; the kernel cuts a longer one.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

#[cfg(not(target_os = "linux"))]
fn set_name(_name: &CStr) {}

#[cfg(not(unix))]
fn start(job: ThreadBody) -> io::Result<()> {
    std::thread::Builder::new().spawn(job).map(drop)
}

#[cfg(unix)]
use posix::start;

#[cfg(unix)]
mod posix {
    use std::ffi::{c_int, c_void};
    use std::io;
    use std::mem::MaybeUninit;

    use super::ThreadBody;
    use crate::record::guard;

    const STACK: usize = 1 << 20;

    pub(super) fn start(job: ThreadBody) -> io::Result<()> {
        let job = Box::into_raw(Box::new(job));
        let before = block_signals();
        let outcome = create(job.cast());
        // SAFETY: `before` is the mask that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
        if outcome != 0 {
            // SAFETY: the box was leaked above, and no thread took it.
            drop(unsafe { Box::from_raw(job) });
            return Err(io::Error::from_raw_os_error(outcome));
        }
        Ok(())
    }

    fn create(job: *mut c_void) -> c_int {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: `pthread_attr_init` initializes what it is given.
        unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
        // SAFETY: the attributes are initialized. If the size is refused, the default is as good.
        unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK) };
        // SAFETY: the attributes are initialized.
        unsafe { libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED) };
        let mut thread = MaybeUninit::uninit();
        // SAFETY: `run` takes ownership of the job; on failure no thread has it.
        let outcome = unsafe { libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, job) };
        // SAFETY: the attributes are initialized and not used again.
        unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
        outcome
    }

    extern "C" fn run(job: *mut c_void) -> *mut c_void {
        guard::set(guard::OWN, true);
        // SAFETY: `start` leaked the box for this thread.
        let job = unsafe { Box::from_raw(job.cast::<ThreadBody>()) };
        job();
        std::ptr::null_mut()
    }

    /// Blocks all signals on this thread, whose mask a new thread inherits. Returns the previous mask.
    fn block_signals() -> libc::sigset_t {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: `sigfillset` initializes the set that it is given.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: `sigemptyset` initializes the set, in case `pthread_sigmask` fails.
        unsafe { libc::sigemptyset(before.as_mut_ptr()) };
        // SAFETY: the set is initialized; only this thread's mask changes.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: the set is initialized.
        unsafe { before.assume_init() }
    }
}
