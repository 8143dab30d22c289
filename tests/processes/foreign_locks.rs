//! No deadlock with locks of the program: of fork handlers, of the loader, of threads that wait for each other. And
//! `errno` of the program stays.

use std::hint::black_box;
use std::io::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crate::child::in_child;
use crate::support::{Raw, cpu};
use crate::training::{OUT, out};

/// State of a library, guarded by a mutex that its fork handlers take.
static LIBRARY: Mutex<Vec<Raw>> = Mutex::new(Vec::new());
static KEPT: Mutex<Vec<Raw>> = Mutex::new(Vec::new());

const MIB: usize = 1 << 20;

fn fork_once() {
    // SAFETY: the child ends at once.
    match unsafe { libc::fork() } {
        // SAFETY: likewise.
        0 => unsafe { libc::_exit(0) },
        child => {
            let mut status = -1;
            // SAFETY: waits for that child.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
}

extern "C" fn before_fork() {
    let library = LIBRARY.lock().unwrap();
    KEPT.lock().unwrap().push(Raw::new(MIB));
    std::mem::forget(library);
}

extern "C" fn after_fork() {
    // SAFETY: `before_fork` locked it on this thread and forgot its guard.
    unsafe { force_unlock(&LIBRARY) };
}

/// # Safety
/// This thread holds the mutex, and no guard of it.
unsafe fn force_unlock<T>(mutex: &Mutex<T>) {
    // SAFETY: a guard is a reference to its mutex and a flag for a panic, of which there was none.
    drop(unsafe { std::mem::transmute::<(&Mutex<T>, bool), std::sync::MutexGuard<'_, T>>((mutex, false)) });
}

#[test]
fn a_fork_handler_may_wait_for_a_lock_under_which_others_allocate_and_allocate_itself() {
    in_child(&[], || {
        // SAFETY: the handlers may run at any time.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
        let session = memtrace::builder().min_size(4096).start().unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    LIBRARY.lock().unwrap().push(black_box(Raw::new(5000)));
                    LIBRARY.lock().unwrap().clear();
                }
            });
            (0..100).for_each(|_| fork_once());
            done.store(true, Relaxed);
        });
        let snapshot = session.snapshot();
        let kept = cpu(&snapshot).live.iter().filter(|block| block.size == MIB as u64).count();
        assert_eq!(kept, 100, "what the handlers took is the program's");
    });
}

/// Frees wait for the snapshot's lock with a system call, which sets `errno`.
#[test]
fn a_free_that_has_to_wait_leaves_the_threads_error_alone() {
    in_child(&[], || {
        let session = memtrace::builder().min_size(0).start().unwrap();
        let _log: Vec<Raw> = (0..20_000).map(|_| Raw::new(64)).collect();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let frees = || {
                while !done.load(Relaxed) {
                    let block = black_box(Raw::new(100));
                    // SAFETY: the descriptor does not exist.
                    assert_eq!(unsafe { libc::close(-1) }, -1);
                    drop(block);
                    assert_eq!(Error::last_os_error().raw_os_error(), Some(libc::EBADF));
                }
            };
            let threads = [scope.spawn(frees), scope.spawn(frees)];
            (0..8).for_each(|_| drop(session.snapshot()));
            done.store(true, Relaxed);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    });
}

/// With the signal's default action, as in programs that are not written in Rust.
#[test]
fn a_message_to_a_closed_pipe_does_not_end_the_program() {
    let dir = tempfile::tempdir().unwrap();
    in_child(&[(OUT, dir.path().to_str().unwrap())], || {
        let mut ends = [0; 2];
        // SAFETY: the array has room for two descriptors.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        // SAFETY: duplicates a descriptor of this process, to restore it at the end.
        let errors = unsafe { libc::dup(2) };
        // SAFETY: standard error becomes one end of the pipe.
        unsafe { libc::dup2(ends[1], 2) };
        // SAFETY: closes the only reading end.
        unsafe { libc::close(ends[0]) };
        // SAFETY: sets the default action.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let dump = out().join("a.txt").display().to_string();
        let session = memtrace::builder().dump_to(dump).dump_at_end(true).start().unwrap();
        let _kept = Raw::new(5000);
        drop(session);
        // SAFETY: restores standard error.
        unsafe { libc::dup2(errors, 2) };
    });
}
