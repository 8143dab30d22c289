//! Shared libraries that are unloaded and replaced at the same addresses, like reloaded plugins.

use std::ffi::{CString, c_void};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;

use memtrace::{Snapshot, StackKind, open};

use crate::child::in_child;
use crate::support::{Raw, cpu};
use crate::training::{OUT, out};

type Take = extern "C" fn(usize);
type Entry = extern "C" fn(Take, usize);

/// Allocates memory that stays.
extern "C" fn take(size: usize) {
    std::mem::forget(black_box(Raw::new(size)));
}

fn build(dir: &Path, name: &str) -> PathBuf {
    build_with(dir, name, "sha1")
}

/// Builds a library with one function of this name, which calls back.
fn build_with(dir: &Path, name: &str, build_id: &str) -> PathBuf {
    let (source, library) = (dir.join(format!("{name}.c")), dir.join(format!("lib{name}.so")));
    let code = "(void (*back)(unsigned long), unsigned long n) { back(n); __asm__ volatile(\"\"); }";
    std::fs::write(&source, format!("void {name}{code}\n")).unwrap();
    let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    let build_id = format!("-Wl,--build-id={build_id}");
    compile.args(["-g", "-shared", "-fPIC", &build_id, "-o"]).args([&library, &source]);
    assert!(compile.status().unwrap().success());
    library
}

struct Library(*mut c_void);

impl Library {
    fn open(path: &Path) -> Self {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the library runs no code when it is loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        Self(library)
    }

    /// Calls the function; returns its address.
    fn call(&self, name: &str, size: usize) -> usize {
        let name = CString::new(name).unwrap();
        // SAFETY: the library is loaded.
        let entry = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!entry.is_null());
        // SAFETY: the function has this type.
        let call = unsafe { std::mem::transmute::<*mut c_void, Entry>(entry) };
        call(take, size);
        entry.addr()
    }

    fn close(self) {
        // SAFETY: the library is open, and none of its functions is running.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

/// The library function below which a block of this size was allocated.
fn plugin(snapshot: &Snapshot, size: u64) -> String {
    let block = cpu(snapshot).live.iter().find(|block| block.size == size).unwrap();
    let is_one = |name: &String| {
        ["alpha", "beta", "gone"].contains(&name.as_str())
            || ["libchanged", "libalpha"].iter().any(|file| name.starts_with(file))
    };
    let names = snapshot.stacks.frames(block.stack).filter_map(|frame| frame.function.clone());
    let found: Vec<String> = names.filter(is_one).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

#[test]
fn code_at_the_addresses_of_unloaded_code_has_its_own_names() {
    let dir = tempfile::tempdir().unwrap();
    let libraries = ["alpha", "beta"].map(|name| build(dir.path(), name));
    in_child(&[(OUT, dir.path().to_str().unwrap())], || {
        let file = out().join("s.memtrace");
        let stream = file.display().to_string();
        let session = memtrace::builder().min_size(4096).stacks(StackKind::All).stream(stream).start().unwrap();
        let mut places = Vec::new();
        let mut once = |index: usize, size: usize| {
            let library = Library::open(&libraries[index]);
            places.push(library.call(["alpha", "beta"][index], size));
            session.flush();
            library.close();
        };
        once(0, 5000);
        once(1, 6000);
        let first = session.snapshot();
        once(0, 7000);
        once(1, 8000);
        let second = session.snapshot();
        session.end().unwrap();
        assert!(places.iter().all(|place| *place == places[0]), "the loader has put them elsewhere: {places:?}");
        for snapshot in [&first, &second, &open(&file).unwrap()] {
            assert_eq!([5000, 6000].map(|size| plugin(snapshot, size)), ["alpha", "beta"]);
        }
        for snapshot in [&second, &open(&file).unwrap()] {
            assert_eq!([7000, 8000].map(|size| plugin(snapshot, size)), ["alpha", "beta"]);
        }
    });
}

/// Neither a missing name nor a wrong one.
#[test]
fn unloaded_code_is_named_from_its_file_if_that_is_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let [gone, changed] = ["gone", "changed"].map(|name| build(dir.path(), name));
    in_child(&[(OUT, dir.path().to_str().unwrap())], || {
        let session = memtrace::builder().min_size(4096).stacks(StackKind::All).start().unwrap();
        for (path, name, size) in [(&gone, "gone", 5000), (&changed, "changed", 6000)] {
            let library = Library::open(path);
            library.call(name, size);
            library.close();
        }
        let other = build(&out(), "other");
        std::fs::rename(other, &changed).unwrap();
        let snapshot = session.snapshot();
        assert_eq!(plugin(&snapshot, 5000), "gone");
        assert!(plugin(&snapshot, 6000).starts_with("libchanged.so+0x"), "{}", plugin(&snapshot, 6000));
        let said = &snapshot.health.unreadable_objects;
        assert!(said.iter().any(|why| why.contains("has changed")), "{said:?}");
    });
}

/// While the library is still loaded.
#[test]
fn code_is_not_named_from_a_file_that_replaced_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let [changed, other] = ["changed", "alpha"].map(|name| build(dir.path(), name));
    in_child(&[(OUT, dir.path().to_str().unwrap())], || {
        let session = memtrace::builder().min_size(4096).stacks(StackKind::All).start().unwrap();
        let library = Library::open(&changed);
        library.call("changed", 5000);
        std::fs::rename(&other, &changed).unwrap();
        let snapshot = session.snapshot();
        assert!(plugin(&snapshot, 5000).starts_with("libchanged.so+0x"), "{}", plugin(&snapshot, 5000));
        library.close();
    });
}

/// Nothing in the file of such a library distinguishes it.
#[test]
fn a_library_without_a_build_id_is_identified_by_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let [alpha, beta] = ["alpha", "beta"].map(|name| build_with(dir.path(), name, "none"));
    in_child(&[(OUT, dir.path().to_str().unwrap())], || {
        let session = memtrace::builder().min_size(4096).stacks(StackKind::All).start().unwrap();
        let first = Library::open(&alpha);
        let place = first.call("alpha", 5000);
        assert_eq!(plugin(&session.snapshot(), 5000), "alpha");
        first.close();
        std::fs::rename(&beta, &alpha).unwrap();
        let second = Library::open(&alpha);
        assert_eq!(second.call("beta", 6000), place, "the loader has put it elsewhere");
        let snapshot = session.snapshot();
        assert_eq!(plugin(&snapshot, 5000), "alpha");
        let name = plugin(&snapshot, 6000);
        assert!(name == "beta" || name.starts_with("libalpha.so+0x"), "{name}");
        second.close();
    });
}
