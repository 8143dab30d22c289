//! Thread names, kept when a thread is first seen and when it ends: the kernel knows only the names of running threads.
#![cfg_attr(
    all(target_os = "linux", not(miri)),
    expect(unsafe_code, reason = "prctl and pthread keys are C functions")
)]

use std::sync::OnceLock;

/// Longest name with its NUL byte (Linux: `TASK_COMM_LEN`).
pub(super) const LENGTH: usize = 16;

/// A thread's names when it was first seen and when it ended, each written once by the thread itself.
#[derive(Debug)]
pub(super) struct ThreadNames {
    first: OnceLock<[u8; LENGTH]>,
    last: OnceLock<[u8; LENGTH]>,
}

impl ThreadNames {
    pub(super) const fn new() -> Self {
        Self { first: OnceLock::new(), last: OnceLock::new() }
    }

    /// Called on the thread itself, when it is first seen.
    pub(super) fn begin(&'static self) {
        let _ = self.first.set(system::own_name());
        system::at_end(self);
    }

    pub(super) fn first(&self) -> Option<String> {
        self.first.get().map(|name| text(*name))
    }

    pub(super) fn last(&self) -> Option<String> {
        self.last.get().map(|name| text(*name))
    }
}

pub(super) fn of_this_thread() -> [u8; LENGTH] {
    system::own_name()
}

pub(super) fn text(name: [u8; LENGTH]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(LENGTH);
    String::from_utf8_lossy(name.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::{LENGTH, ThreadNames};

    pub(super) fn own_name() -> [u8; LENGTH] {
        let mut name = [0u8; LENGTH];
        // SAFETY: PR_GET_NAME writes at most 16 bytes.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        name
    }

    /// A pthread key whose destructor keeps the thread's last name. A Rust thread-local with a destructor would take
    /// the loader's lock on first use.
    static KEY: AtomicU32 = AtomicU32::new(NONE);
    const NONE: u32 = u32::MAX;
    const GONE: u32 = u32::MAX - 1;

    /// Has `end` called when this thread ends.
    pub(super) fn at_end(names: &'static ThreadNames) {
        if let Some(key) = key() {
            // SAFETY: the key is valid; nobody writes through the stored pointer.
            unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(names).cast()) };
        }
    }

    unsafe extern "C" fn end(names: *mut c_void) {
        // SAFETY: the static that `at_end` stored.
        if let Some(names) = unsafe { names.cast::<ThreadNames>().as_ref() } {
            let _ = names.last.set(own_name());
        }
    }

    fn key() -> Option<u32> {
        let key = match KEY.load(Ordering::Relaxed) {
            NONE => make(),
            key => key,
        };
        (key < GONE).then_some(key)
    }

    #[cold]
    fn make() -> u32 {
        let mut key = NONE;
        // SAFETY: `key` is valid for writes; `end` accepts what `at_end` stores, and does not unwind.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(end)) } != 0 {
            return GONE;
        }
        match KEY.compare_exchange(NONE, key, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                // SAFETY: `forget` does not unwind. If this code is in a shared library, `dlclose` calls it.
                unsafe { libc::atexit(forget) };
                key
            }
            Err(made) => {
                // SAFETY: no other thread has this key.
                unsafe { libc::pthread_key_delete(key) };
                made
            }
        }
    }

    /// The code of `end` may be unmapped after this.
    extern "C" fn forget() {
        let key = KEY.swap(GONE, Ordering::Relaxed);
        if key < GONE {
            // SAFETY: the key is valid and not used again.
            unsafe { libc::pthread_key_delete(key) };
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use super::{LENGTH, ThreadNames};

    pub(super) fn own_name() -> [u8; LENGTH] {
        [0; LENGTH]
    }

    pub(super) fn at_end(_names: &'static ThreadNames) {}
}
