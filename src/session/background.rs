//! Threads of memtrace's own: their memory is its own, and the program's signals go elsewhere.
#![cfg_attr(
    unix,
    expect(unsafe_code, reason = "a thread of the C library's: std's has memory before its code is called")
)]

use std::ffi::CStr;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::record::guard;

type Job = Box<dyn FnOnce() + Send>;

/// Threads of memtrace's own that there are.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Does something again and again on a thread that is never joined, until it says false or the program's threads have ended.
pub(super) fn repeat(
    name: &'static CStr,
    interval: Duration,
    mut work: impl FnMut() -> bool + Send + 'static,
) -> io::Result<()> {
    spawn(name, move || {
        let (mut began, mut watch) = (Instant::now(), Watch::new());
        while work() && !watch.is_left_alone() {
            // At least a moment, in which others get at what it locks: a session that ends, a panic.
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
        // A panic would be a defect of ours, and must stay with us.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }))
}

/// Looks now and then whether the program's threads have all ended, the first one with `pthread_exit`: then the process
/// ends with its last thread, and memtrace's must not be that one's reason to go on.
#[derive(Debug)]
struct Watch {
    looked: Instant,
}

impl Watch {
    const EACH: Duration = Duration::from_millis(500);

    fn new() -> Self {
        Self { looked: Instant::now() }
    }

    fn is_left_alone(&mut self) -> bool {
        if self.looked.elapsed() < Self::EACH {
            return false;
        }
        self.looked = Instant::now();
        first_has_ended() && others_have_ended()
    }
}

/// The state of the process's first thread stands behind its name, which is in parentheses.
fn first_has_ended() -> bool {
    let stat = std::fs::read("/proc/self/stat").unwrap_or_default();
    let after_name = stat.iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at + 2));
    after_name == Some(&b'Z')
}

/// The first one is still listed.
fn others_have_ended() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count);
    threads <= RUNNING.load(Ordering::Relaxed) + 1
}

#[cfg(target_os = "linux")]
fn set_name(name: &CStr) {
    // SAFETY: the name is a C string; a longer one would be cut.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

#[cfg(not(target_os = "linux"))]
fn set_name(_name: &CStr) {}

#[cfg(not(unix))]
fn start(job: Job) -> io::Result<()> {
    std::thread::Builder::new().spawn(job).map(drop)
}

#[cfg(unix)]
use posix::start;

#[cfg(unix)]
mod posix {
    use std::ffi::{c_int, c_void};
    use std::io;
    use std::mem::MaybeUninit;

    use super::Job;
    use crate::record::guard;

    const STACK: usize = 1 << 20;

    pub(super) fn start(job: Job) -> io::Result<()> {
        let job = Box::into_raw(Box::new(job));
        let before = block_signals();
        let outcome = create(job.cast());
        // SAFETY: the mask that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
        if outcome != 0 {
            // SAFETY: it was made above, and no thread has it.
            drop(unsafe { Box::from_raw(job) });
            return Err(io::Error::from_raw_os_error(outcome));
        }
        Ok(())
    }

    fn create(job: *mut c_void) -> c_int {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: it fills in what it is given.
        unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
        // SAFETY: they were filled in; where the size is refused, another one is as good.
        unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK) };
        // SAFETY: likewise.
        unsafe { libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED) };
        let mut thread = MaybeUninit::uninit();
        // SAFETY: the function takes the job, and gives it back if there is no thread.
        let outcome = unsafe { libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, job) };
        // SAFETY: they were filled in, and are not used any more.
        unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
        outcome
    }

    extern "C" fn run(job: *mut c_void) -> *mut c_void {
        guard::set(guard::OWN, true);
        // SAFETY: `start` made it for this thread.
        let job = unsafe { Box::from_raw(job.cast::<Job>()) };
        job();
        std::ptr::null_mut()
    }

    /// The new thread has the mask that this one has meanwhile; the mask from before.
    fn block_signals() -> libc::sigset_t {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: it fills in the set that it is given.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: as the next one does, if there is an error.
        unsafe { libc::sigemptyset(before.as_mut_ptr()) };
        // SAFETY: the set was filled in; only this thread's mask changes.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: it was filled in.
        unsafe { before.assume_init() }
    }
}
