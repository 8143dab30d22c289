//! A disk that is full when a test says so, in a child.
#![expect(unsafe_code, reason = "calls the functions of a library in C")]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::path::Path;

use crate::child::{command, ended, if_child};
use crate::full_disk::{Failing, library};

pub(crate) struct Disk {
    begin: unsafe extern "C" fn(*const c_char, c_long, c_int),
    failed: unsafe extern "C" fn() -> c_long,
}

impl Disk {
    /// Runs the body in a child that can fill its disk.
    pub(crate) fn in_child(body: impl FnOnce(&Self)) {
        if_child(|| body(&Self::here()));
        let folder = tempfile::tempdir().unwrap();
        let library = library(folder.path());
        let child = ended(&mut command(&[("LD_PRELOAD", library.to_str().unwrap())])).well();
        let ours = |line: &&str| line.starts_with("memtrace: ");
        child.errors.lines().filter(|line| !ours(line)).for_each(|line| eprintln!("{line}"));
    }

    fn here() -> Self {
        let find = |name: &CStr| {
            // SAFETY: the name is a string of C's.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert!(!found.is_null(), "the library is loaded");
            found
        };
        let (begin, failed) = (find(c"full_disk"), find(c"full_disk_failed"));
        // SAFETY: this is its type in `full_disk.c`.
        let begin =
            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char, c_long, c_int)>(begin) };
        // SAFETY: likewise.
        let failed = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_long>(failed) };
        Self { begin, failed }
    }

    /// From now on calls for files in this folder fail, the first of them the one of this number.
    pub(crate) fn fails(&self, folder: &Path, number: i64, failing: Failing) {
        let folder = CString::new(folder.to_str().unwrap()).unwrap();
        // SAFETY: reads the string.
        unsafe { (self.begin)(folder.as_ptr(), number, failing as c_int) };
    }

    /// From now on none fails; how many have failed.
    pub(crate) fn works(&self) -> i64 {
        // SAFETY: returns a number.
        let failed = unsafe { (self.failed)() };
        self.fails(Path::new(""), 0, Failing::Once);
        failed
    }
}
