//! Calls the recorder when a thread ends. It uses a pthread key, because a Rust thread-local with a destructor would
//! take the loader's lock on first use. Destructors of such keys run after those of thread-locals.
#![cfg_attr(all(target_os = "linux", not(miri)), expect(unsafe_code, reason = "pthread keys are C functions"))]

pub(super) use system::watch;

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::ffi::c_void;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// The functions to call at each thread's end: one entry for each part of the recorder that asks for it.
    static CALLS: [OnceLock<fn()>; 2] = [const { OnceLock::new() }; 2];
    static KEY: AtomicU32 = AtomicU32::new(NONE);
    const NONE: u32 = u32::MAX;
    const GONE: u32 = u32::MAX - 1;

    /// Lets the system call `call`, and the other registered functions, when this thread ends. False if the system
    /// refuses. True at exit, when no call is needed any more.
    pub(in crate::record) fn watch(call: fn()) -> bool {
        let is_known = CALLS
            .iter()
            .any(|place| place.set(call).is_ok() || place.get().is_some_and(|known| *known as usize == call as usize));
        match key() {
            _ if !is_known => false,
            NONE => false,
            GONE => true,
            // SAFETY: the key is valid. Nobody reads through the pointer, which only must not be null.
            key => unsafe { libc::pthread_setspecific(key, std::ptr::dangling()) == 0 },
        }
    }

    unsafe extern "C" fn end(_: *mut c_void) {
        CALLS.iter().filter_map(OnceLock::get).for_each(|call| call());
    }

    fn key() -> u32 {
        match KEY.load(Ordering::Relaxed) {
            NONE => make(),
            key => key,
        }
    }

    #[cold]
    fn make() -> u32 {
        let mut key = NONE;
        // SAFETY: `key` is valid for writes; `end` does not unwind.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(end)) } != 0 {
            return NONE;
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

    /// Deletes the key, because the code of `end` may be unmapped after this.
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
    pub(in crate::record) fn watch(_call: fn()) -> bool {
        false
    }
}
