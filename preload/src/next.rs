//! The functions that the program would call without this library. For each, this is the next definition that the
//! loader knows after this library's.
#![expect(unsafe_code, reason = "calls functions by address")]

use std::ffi::{CStr, c_int, c_long, c_ulong, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

/// Defines for each function a `call`, which calls the next definition. The first call looks all definitions up.
/// `$none` is the result if there is no definition.
macro_rules! functions {
    ($all:ident: $($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty, or $none:expr)?;)*) => {
        $(pub(crate) mod $name {
            use super::*;

            type Function = unsafe extern "C" fn($($kind),*) $(-> $result)?;
            const FIRST: *mut c_void = first as Function as *mut c_void;
            pub(super) static NEXT: AtomicPtr<c_void> = AtomicPtr::new(FIRST);

            /// # Safety
            /// The contract of C's function of this name.
            #[inline(always)]
            pub(crate) unsafe fn call($($argument: $kind),*) $(-> $result)? {
                // SAFETY: the address is that of a function of this name, so it has this type.
                let next = unsafe { std::mem::transmute::<*mut c_void, Function>(NEXT.load(Relaxed)) };
                // SAFETY: the caller's arguments are passed on unchanged.
                unsafe { next($($argument),*) }
            }

            unsafe extern "C" fn first($($argument: $kind),*) $(-> $result)? {
                find_all();
                if NEXT.load(Relaxed) == FIRST {
                    return $($none)?;
                }
                // SAFETY: the caller's arguments are passed on unchanged.
                unsafe { call($($argument),*) }
            }
        })*

        const $all: &[(&CStr, &AtomicPtr<c_void>)] = &[
            $((
                // SAFETY: the text ends with its only zero.
                unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) },
                &$name::NEXT,
            ),)*
        ];
    };
}

functions! { ALLOCATOR:
    malloc(size: usize) -> *mut u8, or std::ptr::null_mut();
    calloc(count: usize, size: usize) -> *mut u8, or std::ptr::null_mut();
    realloc(block: *mut u8, size: usize) -> *mut u8, or std::ptr::null_mut();
    free(block: *mut u8);
    memalign(alignment: usize, size: usize) -> *mut u8, or std::ptr::null_mut();
    aligned_alloc(alignment: usize, size: usize) -> *mut u8, or std::ptr::null_mut();
    posix_memalign(to: *mut *mut u8, alignment: usize, size: usize) -> c_int, or libc::ENOMEM;
    valloc(size: usize) -> *mut u8, or std::ptr::null_mut();
    pvalloc(size: usize) -> *mut u8, or std::ptr::null_mut();
    malloc_usable_size(block: *mut u8) -> usize, or 0;
}

functions! { CALLS:
    pthread_getattr_np(thread: libc::pthread_t, attributes: *mut libc::pthread_attr_t) -> c_int, or libc::ENOSYS;
    prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int, or -1;
    syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long, or -1;
    capset(header: *mut c_void, data: *const c_void) -> c_int, or -1;
    unshare(flags: c_int) -> c_int, or -1;
    setns(descriptor: c_int, kind: c_int) -> c_int, or -1;
    mmap(at: *mut u8, size: usize, access: c_int, flags: c_int, file: c_int, from: i64) -> *mut u8, or libc::MAP_FAILED.cast();
    mmap64(at: *mut u8, size: usize, access: c_int, flags: c_int, file: c_int, from: i64) -> *mut u8, or libc::MAP_FAILED.cast();
    munmap(at: *mut u8, size: usize) -> c_int, or -1;
    mremap(old: *mut u8, old_size: usize, size: usize, flags: c_int, new: *mut u8) -> *mut u8, or libc::MAP_FAILED.cast();
}

/// Looks up the next definitions. If the look-up itself requests memory (a buffer, in old versions of glibc), it gets
/// none.
#[cold]
fn find_all() {
    static IS_LOOKING: AtomicBool = AtomicBool::new(false);
    if IS_LOOKING.swap(true, Relaxed) {
        return;
    }
    for (name, next) in ALLOCATOR.iter().chain(CALLS) {
        let found = next_definition(name);
        if !found.is_null() {
            next.store(found, Relaxed);
        }
    }
    IS_LOOKING.store(false, Relaxed);
}

/// Whether the next allocator is glibc's, which is ready at any time. Other allocators may not be ready so early in a
/// process.
pub(crate) fn is_glibc() -> bool {
    unsafe extern "C" {
        fn __libc_malloc(size: usize) -> *mut u8;
    }
    malloc::NEXT.load(Relaxed) == __libc_malloc as unsafe extern "C" fn(usize) -> *mut u8 as *mut c_void
}

fn next_definition(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a zero.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// Whether the next allocator is a sanitizer's. A sanitizer reports what a library does before `main` as the program's
/// mistakes.
pub(crate) fn is_sanitizer() -> bool {
    let file = object_of(malloc::NEXT.load(Relaxed)).map_or(String::new(), |(_, file)| file);
    ["libasan.so", "libhwasan.so", "liblsan.so", "libtsan.so"].iter().any(|name| file.contains(name))
}

/// Whether the next allocator can be recorded. All its functions must be in one library, which must not have C++'s
/// operators `new` and `delete`, because these would allocate past this library. If not, returns the library's file.
pub(crate) fn is_recordable() -> Result<(), String> {
    find_all();
    let object = |function: &AtomicPtr<c_void>| object_of(function.load(Relaxed)).map(|(base, _)| base);
    let first = object(&malloc::NEXT);
    let has_operators = || {
        let new = next_definition(c"_Znwm");
        // SAFETY: the function has no preconditions. It clears the error that the look-up may have left.
        unsafe { libc::dlerror() };
        !new.is_null() && object_of(new).map(|(base, _)| base) == first
    };
    match ALLOCATOR.iter().all(|(_, next)| object(next) == first) && !has_operators() {
        true => Ok(()),
        false => Err(object_of(malloc::NEXT.load(Relaxed)).map_or(String::new(), |(_, file)| file)),
    }
}

/// The base address and the file of the object that contains an address.
pub(crate) fn object_of(address: *const c_void) -> Option<(usize, String)> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the place for the result is valid.
    let is_found = unsafe { libc::dladdr(address, found.as_mut_ptr()) } != 0;
    // SAFETY: zeros are a valid value of the type.
    let found = unsafe { found.assume_init() };
    if !is_found || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name is a C string that lives as long as the object is loaded.
    let file = unsafe { CStr::from_ptr(found.dli_fname) };
    Some((found.dli_fbase.addr(), file.to_string_lossy().into_owned()))
}
