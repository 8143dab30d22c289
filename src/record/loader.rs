//! Forks and the loader: a fork waits for threads that ask the loader for its objects, during which it is locked.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How many threads ask the loader for its objects, during which it is locked.
static IN_LOADER: AtomicUsize = AtomicUsize::new(0);
static FORKING: AtomicBool = AtomicBool::new(false);
/// Some asked while this process was forked: the loader stays locked in it for ever.
static LOADER_IS_LOST: AtomicBool = AtomicBool::new(false);
/// Forks and threads that ask the loader wait for each other for so long only: a thread may hold the loader's lock for
/// another reason, and wait for one that waits here.
const PATIENCE: Duration = Duration::from_millis(5);

/// A thread that asks the loader: no fork happens meanwhile.
pub(crate) struct InLoader;

/// `None` if the loader must not be asked.
pub(crate) fn in_loader() -> Option<InLoader> {
    if LOADER_IS_LOST.load(Ordering::Relaxed) {
        return None;
    }
    IN_LOADER.fetch_add(1, Ordering::SeqCst);
    if FORKING.load(Ordering::SeqCst) {
        wait_for_fork();
    }
    Some(InLoader)
}

impl Drop for InLoader {
    fn drop(&mut self) {
        IN_LOADER.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cold]
fn wait_for_fork() {
    let began = Instant::now();
    while FORKING.load(Ordering::SeqCst) && began.elapsed() < PATIENCE {
        IN_LOADER.fetch_sub(1, Ordering::SeqCst);
        std::thread::yield_now();
        IN_LOADER.fetch_add(1, Ordering::SeqCst);
    }
}

/// Waits for the threads that ask the loader; false if some still do.
pub(super) fn wait() -> bool {
    FORKING.store(true, Ordering::SeqCst);
    let began = Instant::now();
    let is_asked = || IN_LOADER.load(Ordering::SeqCst) > 0;
    while is_asked() && began.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    !is_asked()
}

/// The fork is over.
pub(super) fn go_on() {
    FORKING.store(false, Ordering::SeqCst);
}

/// The same in the child, where no other thread exists.
pub(super) fn go_on_in_child(loader_is_free: bool) {
    IN_LOADER.store(0, Ordering::SeqCst);
    LOADER_IS_LOST.fetch_or(!loader_is_free, Ordering::Relaxed);
    go_on();
}
