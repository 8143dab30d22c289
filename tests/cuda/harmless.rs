//! What must stay unchanged, whatever the program and its libraries look like.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::raw;
use crate::support::{build_c, function, on_gpu, open};
use crate::truth::assert_live_equals_truth;
use cudarc::driver::CudaContext;

pub(crate) type Answer = extern "C" fn() -> i32;

/// Builds each source, and passes its path to the child in the variable `TEST_` + name.
pub(crate) fn with_libraries(libraries: &[(&str, &str)], body: impl FnOnce()) {
    let folder = tempfile::tempdir().unwrap();
    let search = format!("-L{}", folder.path().display());
    let build = |(name, source): &(&str, &str)| {
        let needed: Vec<&str> = libraries.iter().map(|(other, _)| *other).take_while(|other| other != name).collect();
        let flags: Vec<String> = needed.iter().map(|other| format!("-l:{other}.so")).collect();
        let run_path = format!("-Wl,-rpath,{}", folder.path().display());
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain([search.as_str(), &run_path]).collect();
        (format!("TEST_{name}"), build_c(folder.path(), name, source, &flags).to_str().unwrap().to_owned())
    };
    let in_child = std::env::var_os("TEST_LIBRARIES").is_some();
    let built: Vec<(String, String)> = if in_child { Vec::new() } else { libraries.iter().map(build).collect() };
    let mut variables: Vec<(&str, &str)> = built.iter().map(|(name, path)| (name.as_str(), path.as_str())).collect();
    variables.push(("TEST_LIBRARIES", "1"));
    on_gpu(&variables, body);
}

pub(crate) fn library(name: &str) -> *mut c_void {
    open(std::env::var(format!("TEST_{name}")).unwrap())
}

#[test]
fn errno_and_dlerror_are_the_programs() {
    with_libraries(&[("empty", "int empty(void) { return 1; }")], || {
        // SAFETY: returns the thread's last error.
        assert!(unsafe { libc::dlerror() }.is_null(), "nothing of ours is left over");
        let empty = library("empty");
        // SAFETY: the thread's own variable.
        let errno = unsafe { libc::__errno_location() };
        for name in ["empty", "empty"] {
            // SAFETY: the pointer is valid.
            unsafe { errno.write(77) };
            assert_eq!(function::<Answer>(empty, name)(), 1);
            // SAFETY: the pointer is valid.
            assert_eq!(unsafe { errno.read() }, 77);
        }
        drop(memtrace::start().unwrap());
        // SAFETY: returns the thread's last error.
        assert!(unsafe { libc::dlerror() }.is_null(), "nor after a session");
    });
}

/// Patches imports while the loader is still relocating a library with many imports.
#[test]
fn libraries_can_be_loaded_while_others_are_looked_up() {
    const LARGE: &str = "#include <dlfcn.h>\n static char c; \
        const char *const table[1000000] = {[0 ... 999999] = &c}; \
        int large(void) { return dlsym(RTLD_DEFAULT, \"getenv\") != 0 && table[5] == &c; }";
    with_libraries(&[("large", LARGE)], || {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    drop(memtrace::start().unwrap());
                    ask(c"cuMemAlloc_v2");
                }
            });
            for _ in 0..20 {
                let large = library("large");
                assert_eq!(function::<Answer>(large, "large")(), 1);
                // SAFETY: nothing uses it any more.
                unsafe { libc::dlclose(large) };
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}

fn ask(name: &CStr) -> usize {
    // SAFETY: the name ends with a zero byte.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as usize }
}

#[test]
fn children_of_a_program_that_looks_functions_up_do_not_hang() {
    on_gpu(&[], || {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    ask(c"getenv");
                }
            });
            for _ in 0..300 {
                // SAFETY: the child calls what a child may call and a look-up, and exits.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: ends a child that hangs.
                    unsafe { libc::alarm(5) };
                    let found = ask(c"malloc");
                    // SAFETY: exits without running the parent's handlers.
                    unsafe { libc::_exit(i32::from(found == 0)) };
                }
                let mut status = -1;
                // SAFETY: waits for the child.
                unsafe { libc::waitpid(child, &mut status, 0) };
                assert_eq!(status, 0);
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn the_capture_mode_of_a_thread_stays_its_own() {
    use cudarc::driver::sys::CUstreamCaptureMode_enum::{
        CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    };
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let block = context.default_stream().alloc_zeros::<u8>(100).unwrap();
        assert_eq!(raw::exchange_mode(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CU_STREAM_CAPTURE_MODE_GLOBAL);
        assert_live_equals_truth(&session.snapshot());
        assert_eq!(raw::exchange_mode(CU_STREAM_CAPTURE_MODE_GLOBAL), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        drop(block);
    });
}
