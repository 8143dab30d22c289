//! Names of threads, kept when they are first seen and when they end: the system knows only those that are there.
#![cfg_attr(
    all(target_os = "linux", not(miri)),
    expect(unsafe_code, reason = "the C library is asked for names and ends")
)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The longest one, with a zero behind it.
pub(super) const LENGTH: usize = 16;

/// A thread's name at its beginning or at its end, written once by itself.
#[derive(Debug)]
struct Name {
    halves: [AtomicU64; 2],
    is_kept: AtomicBool,
}

impl Name {
    const fn new() -> Self {
        Self { halves: [const { AtomicU64::new(0) }; 2], is_kept: AtomicBool::new(false) }
    }

    fn keep(&self, name: [u8; LENGTH]) {
        let (halves, _) = name.as_chunks::<8>();
        self.halves
            .iter()
            .zip(halves)
            .for_each(|(half, bytes)| half.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed));
        self.is_kept.store(true, Ordering::Release);
    }

    fn kept(&self) -> Option<[u8; LENGTH]> {
        let mut name = [0; LENGTH];
        let (halves, _) = name.as_chunks_mut::<8>();
        let is_kept = self.is_kept.load(Ordering::Acquire);
        self.halves.iter().zip(halves).for_each(|(half, bytes)| *bytes = half.load(Ordering::Relaxed).to_ne_bytes());
        is_kept.then_some(name)
    }
}

#[derive(Debug)]
pub(super) struct Names {
    first: Name,
    last: Name,
}

impl Names {
    pub(super) const fn new() -> Self {
        Self { first: Name::new(), last: Name::new() }
    }

    /// On the thread that has these names, when it is first seen.
    pub(super) fn begin(&'static self) {
        self.first.keep(system::own_name());
        system::at_end(self);
    }

    fn end(&self) {
        self.last.keep(system::own_name());
    }

    /// The name with which a thread began.
    pub(super) fn first(&self) -> Option<String> {
        self.first.kept().map(text)
    }

    /// The name with which it ended, if it has.
    pub(super) fn last(&self) -> Option<String> {
        self.last.kept().map(text)
    }
}

/// What this thread is called now.
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

    use super::{LENGTH, Names};

    pub(super) fn own_name() -> [u8; LENGTH] {
        let mut name = [0u8; LENGTH];
        // SAFETY: the system writes so many bytes.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        name
    }

    /// The key under which threads keep their names, and which tells of their ends. A thread-local of Rust's with a
    /// destructor would take the loader's lock when it is first used.
    static KEY: AtomicU32 = AtomicU32::new(NONE);
    const NONE: u32 = u32::MAX;
    const GONE: u32 = u32::MAX - 1;

    /// Has `end` called on this thread once it ends.
    pub(super) fn at_end(names: &'static Names) {
        if let Some(key) = key() {
            // SAFETY: the key is one, and what stands under it is never written to by way of this pointer.
            unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(names).cast()) };
        }
    }

    unsafe extern "C" fn end(names: *mut c_void) {
        // SAFETY: what `at_end` put there, a static.
        if let Some(names) = unsafe { names.cast::<Names>().as_ref() } {
            names.end();
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
        // SAFETY: the key is written to where it says; the function takes what is put there and does not unwind.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(end)) } != 0 {
            return GONE;
        }
        match KEY.compare_exchange(NONE, key, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                // SAFETY: the function does not unwind. A library with us in it calls it when it is closed.
                unsafe { libc::atexit(forget) };
                key
            }
            Err(made) => {
                // SAFETY: nobody else has this key.
                unsafe { libc::pthread_key_delete(key) };
                made
            }
        }
    }

    /// No thread calls us from here on: we may be gone.
    extern "C" fn forget() {
        let key = KEY.swap(GONE, Ordering::Relaxed);
        if key < GONE {
            // SAFETY: the key was made, and is used no more.
            unsafe { libc::pthread_key_delete(key) };
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use super::{LENGTH, Names};

    pub(super) fn own_name() -> [u8; LENGTH] {
        [0; LENGTH]
    }

    pub(super) fn at_end(_names: &'static Names) {}
}
