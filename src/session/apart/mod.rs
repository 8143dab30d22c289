//! A thread with a descriptor table of its own, where memtrace opens, writes and closes its files while a program runs.
//!
//! The threads of a process share a table of descriptors. If memtrace opened a file in the program's table, the file
//! would get a number that the program expects to get. The program might also close this descriptor, or put another
//! file under its number between memtrace's check and memtrace's write.
//!
//! The files have a thread of their own, because memtrace's other threads need the program's table. If the main thread
//! calls `pthread_exit`, the C library calls `exit` on the last thread, which may be one of memtrace's. `exit` needs
//! the program's table to write what buffered streams still hold.
//!
//! If the system refuses such a table (as in some containers before Linux 5.9), the calling thread does all of this
//! work.

mod descriptors;
mod desk;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
pub(super) mod named;

use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use self::desk::Desk;
use super::spawn::{OwnThread, spawn};
use crate::record::fork;
use crate::record::pages::{PageVec, Pages};

static CURRENT: Mutex<Weak<FileThread>> = Mutex::new(Weak::new());

fn with_current<T>(act: impl FnOnce(&mut Weak<FileThread>) -> T) -> T {
    let _no_fork = fork::no_fork();
    act(&mut CURRENT.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The thread for files. It ends when the last owner of this value is dropped.
#[derive(Debug)]
pub(super) struct FileThread {
    desk: Arc<Desk>,
    thread: Mutex<Option<OwnThread>>,
    /// The process in which the thread runs. A forked child inherits this value, but not the thread.
    process: u32,
}

/// The process's thread, started if there is none; `None` if it cannot be started.
pub(super) fn thread() -> Option<Arc<FileThread>> {
    if let Some(thread) = current() {
        return Some(thread);
    }
    let new = Arc::new(FileThread::start()?);
    Some(with_current(|current| {
        // Another session may have started one meanwhile.
        let other = running(current);
        other.unwrap_or_else(|| {
            *current = Arc::downgrade(&new);
            Arc::clone(&new)
        })
    }))
}

fn current() -> Option<Arc<FileThread>> {
    with_current(|current| running(current))
}

fn running(current: &Weak<FileThread>) -> Option<Arc<FileThread>> {
    current.upgrade().filter(|thread| thread.is_this_process() && thread.desk.is_open())
}

/// Ends the thread and waits for its end. Afterwards each caller opens files on its own thread.
pub(super) fn end() {
    if let Some(thread) = current() {
        thread.end();
    }
}

impl FileThread {
    fn start() -> Option<Self> {
        let desk = Arc::new(Desk::default());
        let served = Arc::clone(&desk);
        let thread = spawn(c"memtrace-files", move || served.serve()).ok()?;
        desk.opens().then(|| Self { desk, thread: Mutex::new(Some(thread)), process: std::process::id() })
    }

    fn is_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Does the work on the thread and waits for the outcome. `None` if the thread has ended.
    ///
    /// The work should not allocate or free: glibc reserves 64 MiB of addresses for a thread that does.
    pub(super) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if self.is_this_process() { self.desk.ask(work) } else { None }
    }

    fn end(&self) {
        self.desk.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}

/// Does the work on the thread for files, or on the calling thread if `thread` is `None`. Returns `None` if the thread
/// for files has ended.
pub(super) fn on<T: Send + 'static>(
    thread: Option<&FileThread>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    match thread {
        Some(thread) => thread.run(work),
        None => Some(work()),
    }
}

impl Drop for FileThread {
    fn drop(&mut self) {
        if self.is_this_process() {
            self.end();
        } else {
            // The thread does not exist in this forked child. Detaching it would write to its stack, which the C
            // library may have given to a thread of the child.
            let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
            std::mem::forget(thread);
        }
    }
}

/// What `parse` finds in one of the kernel's text files. `room` is the expected size in bytes. The text lies in pages
/// of its own, because C's allocator may keep memory that is freed, and the process would stay larger.
pub(super) fn read<T>(path: &str, mut room: usize, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    loop {
        let (path, mut text) = (path.to_owned(), PageVec::new_in(Pages));
        text.try_reserve_exact(room).ok()?;
        let fill = move || (fill(&path, &mut text), path, text);
        let (filled, _, text) = on(current().as_deref(), fill)?;
        filled.ok()?;
        if text.len() < text.capacity() {
            return parse(std::str::from_utf8(&text).ok()?);
        }
        room *= 4;
    }
}

/// Reads the file into the capacity of `text`, and touches only as much of this memory as the file needs.
fn fill(path: &str, text: &mut PageVec<u8>) -> io::Result<()> {
    let mut file = File::open(path)?;
    while text.len() < text.capacity() {
        let filled = text.len();
        text.resize(text.capacity().min(filled + (64 << 10)), 0);
        let read = file.read(&mut text[filled..]);
        text.truncate(filled + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => break,
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
