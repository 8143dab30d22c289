//! Names of running and ended threads.

use std::sync::mpsc::channel;
use std::thread;

use memtrace::{Snapshot, open, scope};

use crate::child::in_child;
use crate::support::{Raw, cpu, records};
use crate::training::{OUT, out};

/// The name of the thread that opened this scope.
fn who(snapshot: &Snapshot, name: &str) -> String {
    let is_it = |record: &&memtrace::snapshot::Record| snapshot.context_path(record.context) == name;
    let number = records(snapshot).iter().find(is_it).unwrap().thread;
    snapshot.process.threads.iter().find(|thread| thread.number == number).unwrap().name.clone()
}

fn allocate(name: &'static str) {
    scope(name, || drop(Raw::new(5000)));
}

fn rename(name: &std::ffi::CStr) {
    // SAFETY: names this thread with a string that ends in a zero byte.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

#[test]
fn threads_that_have_ended_keep_their_names() {
    let dir = tempfile::tempdir().unwrap();
    in_child(&[(OUT, dir.path().to_str().unwrap())], || {
        let file = out().join("streamed.memtrace");
        let session = memtrace::builder().min_size(4096).stream(file.display().to_string()).start().unwrap();
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        named("worker-of-old").spawn(|| allocate("ended")).unwrap().join().unwrap();
        let renamed = || {
            allocate("renamed");
            rename(c"a-better-name");
        };
        named("as-it-began").spawn(renamed).unwrap().join().unwrap();
        let (go_on, wait) = channel::<()>();
        let (begun, began) = channel();
        let lives = move || {
            allocate("lives");
            rename(c"and-lives-on");
            begun.send(()).unwrap();
            wait.recv().unwrap_err();
        };
        let alive = named("alive").spawn(lives).unwrap();
        began.recv().unwrap();
        let snapshot = session.snapshot();
        session.end().unwrap();
        drop(go_on);
        alive.join().unwrap();
        for snapshot in [snapshot, open(file).unwrap()] {
            let names = ["ended", "renamed", "lives"].map(|name| who(&snapshot, name));
            assert_eq!(names, ["worker-of-old", "a-better-name", "and-lives-on"], "{}", cpu(&snapshot).records.len());
        }
    });
}

#[test]
fn a_name_that_a_thread_gets_at_its_end_is_kept() {
    struct AtEnd;
    impl Drop for AtEnd {
        fn drop(&mut self) {
            rename(c"at-the-end");
        }
    }
    thread_local!(static LAST: AtEnd = const { AtEnd });
    in_child(&[], || {
        let session = memtrace::builder().min_size(4096).start().unwrap();
        let work = || {
            allocate("one");
            // Its destructor runs first.
            LAST.with(|_| ());
        };
        thread::spawn(work).join().unwrap();
        assert_eq!(who(&session.snapshot(), "one"), "at-the-end");
    });
}
