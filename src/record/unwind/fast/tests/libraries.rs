//! Libraries that are loaded and unloaded.
#![expect(unsafe_code, reason = "dlopen and dlclose are C functions")]

use std::ffi::{CString, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;

use super::frames::{Callback, assembly};
use super::{both, note, only_one, seen_in};
use crate::record::unwind::fast::lookup;

/// A library whose only function calls back from a frame of this many bytes. Libraries with different frames have the
/// same code addresses.
pub(super) fn build(folder: &Path, frame: usize) -> PathBuf {
    let (source, library) = (folder.join(format!("{frame}.s")), folder.join(format!("{frame}.so")));
    fs::write(&source, assembly::library(frame)).unwrap();
    let mut compiler = Command::new("cc");
    let built = compiler.args(["-shared", "-nostdlib", "-Wl,--eh-frame-hdr", "-o"]).arg(&library).arg(&source);
    assert!(built.status().unwrap().success());
    library
}

pub(super) struct Library(*mut c_void);

impl Library {
    pub(super) fn open(path: &Path) -> Self {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the library has no code that runs when it is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        Self(handle)
    }

    pub(super) fn call_back(&self) -> unsafe extern "C" fn(Callback, *mut c_void) {
        // SAFETY: the handle is open, the name ends with a NUL byte.
        let found = unsafe { libc::dlsym(self.0, c"call_back".as_ptr()) };
        assert!(!found.is_null());
        // SAFETY: the function has this signature.
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Callback, *mut c_void)>(found) }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the handle is open; no code of the library is running.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

#[test]
fn another_library_at_the_same_address_has_its_own_frames() {
    let folder = tempfile::tempdir().unwrap();
    let libraries = [24usize, 40, 56].map(|frame| build(folder.path(), frame));
    let mut addresses = Vec::new();
    for library in libraries.iter().cycle().take(60) {
        let library = Library::open(library);
        let call_back = library.call_back();
        addresses.push(call_back as usize);
        for _ in 0..3 {
            // SAFETY: the library is open.
            only_one(seen_in(|| unsafe { call_back(note, null_mut()) })).assert_proven();
        }
    }
    // If no address was reused, nothing was tested. Other tests may map memory in between.
    let again = addresses.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert!(again > 20, "{again} of {}", addresses.len());
}

#[test]
fn threads_take_stacks_while_libraries_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let libraries = [72usize, 88].map(|frame| build(folder.path(), frame));
    let come_and_go = |path: &PathBuf| {
        for _ in 0..200 {
            let library = Library::open(path);
            let call_back = library.call_back();
            // SAFETY: the library is open.
            let seen = only_one(seen_in(|| unsafe { call_back(note, null_mut()) }));
            // The other threads may change the cache at any time.
            assert!(seen.ours.is_none_or(|ours| ours == seen.libgccs));
        }
    };
    std::thread::scope(|scope| {
        libraries.iter().for_each(|path| drop(scope.spawn(move || come_and_go(path))));
        libraries.iter().for_each(|path| drop(scope.spawn(move || come_and_go(path))));
    });
}

#[test]
fn only_what_is_never_unloaded_stays() {
    let folder = tempfile::tempdir().unwrap();
    let library = Library::open(&build(folder.path(), 104));
    let rule_at = |address: usize| lookup::find(address as u64).rule;
    assert!(rule_at(both as fn() -> super::Both as usize + 1).stays());
    assert!(rule_at(libc::qsort as *const () as usize + 1).stays());
    // An address after the instruction that makes room for the frame.
    let theirs = rule_at(library.call_back() as usize + 4);
    assert!(!theirs.stays() && !theirs.is_unproven());
    assert!(rule_at(Box::leak(Box::new(0u8)) as *mut u8 as usize).is_unproven());
}
