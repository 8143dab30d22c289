//! A program whose main thread ends before the others.

use std::thread;
use std::time::Duration;

use memtrace::{Device, open};

use crate::child::{ended, program};
use crate::support::Raw;

/// The variable with the stream's file; if it is set, the main thread ends before `main`.
const STREAM: &str = "MEMTRACE_TEST_NO_MAIN";

#[used]
// SAFETY: the loader calls the functions in this section; this one does not unwind.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn start() {
        let Ok(stream) = std::env::var(STREAM) else { return };
        let session =
            memtrace::builder().min_size(4096).stream(stream).dump_on_signal(memtrace::Signal::Usr2).start().unwrap();
        std::mem::forget(session);
        thread::spawn(|| {
            std::mem::forget(Raw::new(5000));
            thread::sleep(Duration::from_millis(300));
        });
        // SAFETY: ends only this thread. `pthread_exit` would unwind.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    start
};

#[test]
fn the_process_ends_with_the_programs_last_thread() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.memtrace");
    // The kernel kills a process that hangs.
    let child = ended(program(&std::env::current_exe().unwrap()).arg("--list").env(STREAM, &file));
    assert!(child.status.success() && !child.out.contains("tests"), "{child}");
    let read = open(&file).unwrap();
    assert!(read.device(Device::Cpu).unwrap().live.iter().any(|block| block.size == 5000));
}
