//! memtrace's own threads. All signals are blocked on them, and every allocation on them is own memory.
//!
//! They are created with `pthread_create`, because `std::thread` allocates on the new thread before it calls the
//! closure.
#![cfg_attr(unix, expect(unsafe_code, reason = "creates threads with C functions"))]

use std::ffi::CStr;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::record::guard;

type ThreadBody = Box<dyn FnOnce() + Send>;

/// How many of memtrace's own threads exist.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

pub(super) fn running() -> usize {
    RUNNING.load(Ordering::Relaxed)
}

/// Does the work on a new thread.
pub(super) fn spawn(name: &'static CStr, work: impl FnOnce() + Send + 'static) -> io::Result<OwnThread> {
    let _own = guard::own_work();
    start(Box::new(move || {
        guard::set(guard::OWN, true);
        set_name(name);
        RUNNING.fetch_add(1, Ordering::Relaxed);
        ends::note_this_thread();
        // A panic here is a bug of memtrace and must not reach the program.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }))
}

/// Sleeps for this time, or until the recording ends and its threads have to end.
pub(super) fn sleep(time: Duration) {
    ends::sleep(time);
}

#[cfg(all(feature = "preload", target_os = "linux"))]
pub(super) use ends::wait_for_all;

/// Keeps the kernel's ids of memtrace's threads, to wait until the kernel has ended all of them.
#[cfg(all(feature = "preload", target_os = "linux"))]
mod ends {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Condvar, Mutex, PoisonError};
    use std::time::{Duration, Instant};

    use crate::record::thread::own_os_id;
    use crate::session::kernel_thread::is_alive;

    /// The kernel's ids of the threads. There are more places than threads at once. A place is free if its
    /// thread has ended.
    static THREADS: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];
    static SLEEPING: Mutex<()> = Mutex::new(());
    static WAKE: Condvar = Condvar::new();
    const PATIENCE: Duration = Duration::from_secs(2);

    pub(super) fn note_this_thread() {
        let this = own_os_id();
        let _ = THREADS.iter().find(|place| {
            let other = place.load(Ordering::Relaxed);
            (other == 0 || !is_alive(other))
                && place.compare_exchange(other, this, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        });
    }

    pub(super) fn sleep(time: Duration) {
        let sleeping = SLEEPING.lock().unwrap_or_else(PoisonError::into_inner);
        drop(WAKE.wait_timeout(sleeping, time));
    }

    /// Waits until the kernel no longer knows any of the threads, but at most for a fixed time.
    pub(in crate::session) fn wait_for_all() {
        let began = Instant::now();
        let is_left =
            |place: &AtomicU32| Some(place.load(Ordering::Relaxed)).filter(|id| *id != 0).is_some_and(is_alive);
        while THREADS.iter().any(is_left) && began.elapsed() < PATIENCE {
            WAKE.notify_all();
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

#[cfg(not(all(feature = "preload", target_os = "linux")))]
mod ends {
    pub(super) fn note_this_thread() {}

    pub(super) use std::thread::sleep;
}

#[cfg(target_os = "linux")]
fn set_name(name: &CStr) {
    // SAFETY: the name is a C string; the kernel cuts a longer one.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

#[cfg(not(target_os = "linux"))]
fn set_name(_name: &CStr) {}

#[cfg(not(unix))]
fn start(job: ThreadBody) -> io::Result<OwnThread> {
    std::thread::Builder::new().spawn(job).map(OwnThread)
}

#[cfg(not(unix))]
#[derive(Debug)]
pub(super) struct OwnThread(std::thread::JoinHandle<()>);

#[cfg(not(unix))]
impl OwnThread {
    pub(super) fn join(self) {
        let _ = self.0.join();
    }
}

#[cfg(unix)]
pub(super) use posix::OwnThread;
#[cfg(unix)]
use posix::start;

#[cfg(unix)]
mod posix {
    use std::ffi::{c_int, c_void};
    use std::io;
    use std::mem::{ManuallyDrop, MaybeUninit};

    use super::ThreadBody;
    use crate::record::guard;

    const STACK: usize = 1 << 20;

    /// A thread. If nobody joins it, it ends by itself.
    #[derive(Debug)]
    pub(in crate::session) struct OwnThread(libc::pthread_t);

    // SAFETY: any thread may join or detach it.
    unsafe impl Send for OwnThread {}

    impl OwnThread {
        pub(in crate::session) fn join(self) {
            // SAFETY: nobody has joined or detached the thread, and nobody will, because its owner is consumed.
            unsafe { libc::pthread_join(ManuallyDrop::new(self).0, std::ptr::null_mut()) };
        }
    }

    impl Drop for OwnThread {
        fn drop(&mut self) {
            // SAFETY: nobody has joined or detached the thread.
            unsafe { libc::pthread_detach(self.0) };
        }
    }

    pub(super) fn start(job: ThreadBody) -> io::Result<OwnThread> {
        let job = Box::into_raw(Box::new(job));
        let before = block_signals();
        let created = create(job.cast());
        // SAFETY: `before` is the mask that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
        created.map_err(|code| {
            // SAFETY: the box was leaked above, and no thread took it.
            drop(unsafe { Box::from_raw(job) });
            io::Error::from_raw_os_error(code)
        })
    }

    fn create(job: *mut c_void) -> Result<OwnThread, c_int> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: `pthread_attr_init` initializes what it is given.
        unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
        // SAFETY: the attributes are initialized. If the size is refused, the default size is good enough.
        unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK) };
        let mut thread = MaybeUninit::uninit();
        // SAFETY: `run` takes ownership of the job; on failure no thread has it.
        let outcome = unsafe { libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, job) };
        // SAFETY: the attributes are initialized and not used again.
        unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
        // SAFETY: a thread that was created has an id.
        if outcome == 0 { Ok(OwnThread(unsafe { thread.assume_init() })) } else { Err(outcome) }
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
