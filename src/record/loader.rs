//! How forks and the dynamic loader get along. The loader is locked while a thread asks it for the loaded objects. A
//! fork waits for such threads, because otherwise the loader would stay locked for ever in the child.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Number of threads that are asking the loader for the loaded objects. The loader is locked meanwhile.
static IN_LOADER: AtomicUsize = AtomicUsize::new(0);
static FORKING: AtomicBool = AtomicBool::new(false);
/// A thread was asking the loader when this process was forked: the loader stays locked in this process.
static LOADER_IS_LOST: AtomicBool = AtomicBool::new(false);
/// The longest time that a fork and threads that ask the loader wait for each other. It is limited, because the
/// loader's lock may be held by a thread that waits for one of these threads.
const PATIENCE: Duration = Duration::from_millis(5);

/// Guard of a thread that asks the loader. Forks wait for it, but at most for [`PATIENCE`].
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

/// Waits for the threads that are asking the loader. False if some still are.
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

/// [`go_on`] in the child, where no other thread exists.
pub(super) fn go_on_in_child(loader_is_free: bool) {
    IN_LOADER.store(0, Ordering::SeqCst);
    LOADER_IS_LOST.fetch_or(!loader_is_free, Ordering::Relaxed);
    go_on();
}
