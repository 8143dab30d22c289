//! Children of a recording process that came about otherwise than by `fork`.

use memtrace::{Device, read_capture};

use crate::child::in_child;
use crate::support::Raw;
use crate::training::{OUT, out};

/// A child without the fork handlers of the C library.
fn bare_fork() -> i32 {
    // SAFETY: as `fork`: the child is a copy, with this thread alone.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 }
}

fn wait_for(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is there to be written to.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[test]
fn a_child_without_fork_handlers_leaves_its_parents_capture_alone() {
    let dir = tempfile::tempdir().unwrap();
    in_child(&[(OUT, dir.path().to_str().unwrap())], || {
        let file = out().join("streamed.memtrace");
        let mut session = Some(memtrace::builder().min_size(4096).stream(file.display().to_string()).start().unwrap());
        let mut kept = Vec::new();
        for _ in 0..5 {
            kept.extend((0..500).map(|n| Raw::new(5000 + n)));
            let child = bare_fork();
            if child == 0 {
                // SAFETY: the kernel ends the child if it hangs.
                unsafe { libc::alarm(20) };
                session.as_ref().unwrap().flush();
                drop(session.take());
                std::process::exit(3);
            }
            assert_eq!(wait_for(child), 3 << 8);
        }
        session.unwrap().end().unwrap();
        let read = read_capture(file).unwrap();
        assert!(!read.health.cut_off && read.health.unread_bytes == 0, "{:?}", read.health);
        let live = read.device(Device::Cpu).unwrap().live.iter().filter(|block| block.size >= 5000).count();
        assert!(live >= kept.len(), "{live} of {}", kept.len());
    });
}
