//! Children of a recording process that are created without `fork`, or that receive its signals.

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use memtrace::{Device, open, scope};

use crate::child::{eventually, in_child};
use crate::support::Raw;
use crate::training::{OUT, out};

/// Creates a child without running the C library's fork handlers.
fn bare_fork() -> i32 {
    // SAFETY: like `fork`: the child is a copy with only this thread.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 }
}

fn wait_for(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[test]
fn a_child_without_fork_handlers_leaves_its_parents_capture_alone() {
    let dir = tempfile::tempdir().unwrap();
    in_child(&[(OUT, dir.path().to_str().unwrap())], || {
        let file = out().join("streamed.memtrace");
        let mut session = Some(memtrace::builder().min_size(4096).stream(file.display().to_string()).start().unwrap());
        let (mut kept, mut ended) = (Vec::new(), 0);
        for _ in 0..5 {
            kept.extend((0..500).map(|n| Raw::new(5000 + n)));
            let child = bare_fork();
            if child == 0 {
                // SAFETY: the kernel ends the child if it hangs.
                unsafe { libc::alarm(5) };
                session.as_ref().unwrap().flush();
                drop(session.take());
                std::process::exit(3);
            }
            // Such a child sometimes hangs for other reasons: another thread may have held a lock of `malloc`.
            let status = wait_for(child);
            assert!([3 << 8, libc::SIGALRM].contains(&status), "{status}");
            ended += usize::from(status == 3 << 8);
        }
        assert!(ended >= 3, "{ended} of 5 children ended");
        session.unwrap().end().unwrap();
        let read = open(file).unwrap();
        assert!(!read.health.cut_off && read.health.unread_bytes == 0, "{:?}", read.health);
        let live = read.device(Device::Cpu).unwrap().live.iter().filter(|block| block.size >= 5000).count();
        assert!(live >= kept.len(), "{live} of {}", kept.len());
    });
}

#[test]
fn a_signal_to_a_forked_child_does_not_affect_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    in_child(&[(OUT, dir.path().to_str().unwrap())], || {
        let dump = out().join("dump.memtrace");
        let session = memtrace::builder().min_size(4096).dump_on_signal(memtrace::Signal::Usr2);
        let session = session.dump_to(dump.display().to_string()).start().unwrap();
        // SAFETY: the child calls only functions of the C library.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: waits for the signal, whose handler sets a flag.
            unsafe { libc::pause() };
            // SAFETY: ends the process without the parent's exit handlers.
            unsafe { libc::_exit(0) };
        }
        // Repeatedly: a signal before the child waits would be lost.
        eventually("the child has had its signal", || {
            // SAFETY: the child has not been waited for.
            unsafe { libc::kill(child, libc::SIGUSR2) };
            // SAFETY: a null pointer requests no status.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG) == child }
        });
        let _kept = scope("after the child", || Raw::new(5000));
        // SAFETY: the handler sets a flag.
        unsafe { libc::raise(libc::SIGUSR2) };
        eventually("a snapshot is there", || dump.exists());
        drop(session);
        let read = open(&dump).unwrap();
        assert!(read.contexts.iter().any(|node| node.name == "after the child"), "it was the child's signal");
        assert_eq!(fs::read_dir(out()).unwrap().count(), 1);
    });
}

#[test]
fn a_signal_writes_to_no_descriptor_of_the_program() {
    let dir = tempfile::tempdir().unwrap();
    in_child(&[(OUT, dir.path().to_str().unwrap())], || {
        let dump = out().join("dump.memtrace");
        let session = memtrace::builder().min_size(4096).dump_on_signal(memtrace::Signal::Usr2);
        let _session = session.dump_to(dump.display().to_string()).start().unwrap();
        // SAFETY: closes them like a daemon; no code here uses them.
        unsafe { libc::close_range(3, u32::MAX, 0) };
        let files: Vec<File> = (0..20).map(|n| File::create(out().join(format!("file-{n}"))).unwrap()).collect();
        assert_eq!(files[0].as_raw_fd(), 3);
        // SAFETY: the handler sets a flag.
        unsafe { libc::raise(libc::SIGUSR2) };
        eventually("a snapshot is there", || dump.exists());
        files.iter().for_each(|file| assert_eq!(file.metadata().unwrap().len(), 0));
    });
}
