//! `dlsym` and `cuGetProcAddress`: who asks for a function of the driver gets ours.
#![expect(unsafe_code, reason = "functions of C, and one in assembly that must leave its caller's frame alone")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::driver::{self, Function};
use super::patch::Pair;
use super::{calls, loader, patch, start};
use crate::errno::KeepErrno;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The real one, kept before anything was changed.
static REAL_DLSYM: AtomicUsize = AtomicUsize::new(0);
/// Another library's comes before it.
static IS_INTERPOSED: AtomicBool = AtomicBool::new(false);
/// Answers that were ours.
static ANSWERED: AtomicU64 = AtomicU64::new(0);

/// Keeps the real `dlsym`: to be called before anything is changed; false if it cannot be found. It is
/// asked for in its library: a program that takes its address may have a stub of its own under that name,
/// which leads to what we change.
pub(super) fn keep_real() -> bool {
    let found = loader::function_of(&[c"libc.so.6", c"libdl.so.2"], c"dlsym");
    REAL_DLSYM.store(found.map_or(0, |found| found.address), Ordering::Release);
    IS_INTERPOSED.store(found.is_some_and(|found| found.is_interposed), Ordering::Release);
    found.is_some()
}

/// Functions of the driver that were asked for by name and answered with ours.
pub(super) fn answered() -> u64 {
    ANSWERED.load(Ordering::Relaxed)
}

pub(super) fn real_dlsym_address() -> usize {
    REAL_DLSYM.load(Ordering::Acquire)
}

/// `dlsym` and ours.
pub(super) fn pair() -> Pair {
    Pair { real: real_dlsym_address(), ours: dlsym_address(), interposed: IS_INTERPOSED.load(Ordering::Acquire) }
}

pub(super) fn dlsym_address() -> usize {
    dlsym as *const () as usize
}

/// Asks the real `dlsym`.
pub(super) fn real_dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    let address = REAL_DLSYM.load(Ordering::Acquire);
    if address == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: the address is that of `dlsym`.
    let dlsym = unsafe { std::mem::transmute::<usize, Dlsym>(address) };
    // SAFETY: `dlsym` takes any handle that its caller has, and a C string.
    unsafe { dlsym(handle, name.as_ptr()) }
}

/// The look-up functions themselves, and ours.
pub(super) fn known(name: &[u8]) -> Option<(&'static Function, usize)> {
    match name {
        b"cuGetProcAddress" => Some((&REAL, get_proc_address as *const () as usize)),
        b"cuGetProcAddress_v2" => Some((&REAL_V2, get_proc_address_v2 as *const () as usize)),
        _ => None,
    }
}

pub(super) fn look_up_all() {
    [&REAL, &REAL_V2].into_iter().for_each(|function| _ = function.address());
}

/// An answer, or where to go on if there is none.
#[repr(C)]
struct Decision {
    answer: usize,
    go_on: usize,
}

/// Stands in for `dlsym`. Where there is nothing to answer it jumps to the real one, which then sees
/// its true caller: `RTLD_NEXT` means "after the caller".
#[unsafe(naked)]
unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdx, [rsp + 24]",
        "call {decide}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "jmp rdx",
        decide = sym decide,
    )
}

/// # Safety
/// The arguments as `dlsym` takes them, and where it returns to.
unsafe extern "C" fn decide(handle: *mut c_void, name: *const c_char, caller: *const c_void) -> Decision {
    let _errno = KeepErrno::new();
    let go_on = REAL_DLSYM.load(Ordering::Acquire);
    let nothing = Decision { answer: 0, go_on };
    if name.is_null() {
        return nothing;
    }
    // SAFETY: `dlsym` takes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let of_the_driver = name.to_bytes().starts_with(b"cu");
    // What is asked for may lie in an object that was loaded just now.
    if (of_the_driver || is_new(handle)) && !start::was_forked() {
        patch::patch_new_objects();
    }
    if name == start::OUR_NAME {
        return Decision { answer: decide as *const () as usize, go_on };
    }
    if !of_the_driver || handle == libc::RTLD_NEXT {
        return nothing;
    }
    match calls::replacement(name.to_bytes()) {
        // Only what is there is answered, and only with what stands in for the driver's own.
        Some(ours) if is_the_drivers(find_for(caller, handle, name), name) => {
            ANSWERED.fetch_add(1, Ordering::Relaxed);
            Decision { answer: ours, go_on }
        }
        _ => nothing,
    }
}

/// Has this handle not been asked lately? Objects are looked for only then: the loader has to be locked for
/// that, which not every caller of `dlsym` is prepared for.
fn is_new(handle: *mut c_void) -> bool {
    const KNOWN: usize = 64;
    static HANDLES: [AtomicUsize; KNOWN] = [const { AtomicUsize::new(0) }; KNOWN];
    if handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT {
        return false;
    }
    let address = handle.addr();
    // Handles are addresses of large structures.
    let place = HANDLES.get((address >> 5) % KNOWN);
    place.is_none_or(|place| place.swap(address, Ordering::Relaxed) != address)
}

/// What the real `dlsym` would answer this caller. Asked for what it can see itself, without a handle, it
/// looks among the caller's own libraries too, which ours are not.
fn find_for(caller: *const c_void, handle: *mut c_void, name: &CStr) -> *mut c_void {
    let found = real_dlsym(handle, name);
    if !found.is_null() || handle != libc::RTLD_DEFAULT {
        return found;
    }
    let mut object: libc::Dl_info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: the place for the answer is ours; any address may be asked about.
    if unsafe { libc::dladdr(caller, &mut object) } == 0 || object.dli_fname.is_null() {
        return found;
    }
    // SAFETY: the loader's name is a C string that lives as long as the object, which is the caller's.
    let Some(own) = loader::opened(unsafe { CStr::from_ptr(object.dli_fname) }) else { return found };
    let found = real_dlsym(own, name);
    // SAFETY: the handle was opened above; its object stays loaded, for it is the caller's.
    unsafe { libc::dlclose(own) };
    found
}

fn is_the_drivers(address: *mut c_void, name: &CStr) -> bool {
    !address.is_null() && driver::find(name).is_some_and(|real| real == address.addr())
}

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> c_int;
type GetProcAddressV2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

static REAL: Function = Function::new(c"cuGetProcAddress");
static REAL_V2: Function = Function::new(c"cuGetProcAddress_v2");

/// # Safety
/// The arguments as the driver's function takes them.
unsafe extern "C" fn get_proc_address(name: *const c_char, out: *mut *mut c_void, version: c_int, flags: u64) -> c_int {
    let Some(real) = REAL.address() else { return driver::NOT_FOUND };
    // SAFETY: the address is that of the function with this signature.
    let real = unsafe { std::mem::transmute::<usize, GetProcAddress>(real) };
    // SAFETY: the arguments are the caller's.
    let result = unsafe { real(name, out, version, flags) };
    // SAFETY: `out` is the caller's, and the driver has filled it in if the result is 0.
    unsafe { substitute(result, out) };
    result
}

/// # Safety
/// The arguments as the driver's function takes them.
unsafe extern "C" fn get_proc_address_v2(
    name: *const c_char,
    out: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> c_int {
    let Some(real) = REAL_V2.address() else { return driver::NOT_FOUND };
    // SAFETY: the address is that of the function with this signature.
    let real = unsafe { std::mem::transmute::<usize, GetProcAddressV2>(real) };
    // SAFETY: the arguments are the caller's.
    let result = unsafe { real(name, out, version, flags, status) };
    // SAFETY: `out` is the caller's, and the driver has filled it in if the result is 0.
    unsafe { substitute(result, out) };
    result
}

/// Puts our function where the driver's was found, by its address: names and versions do not matter.
///
/// # Safety
/// If `result` is 0, `out` is null or points to an address.
unsafe fn substitute(result: c_int, out: *mut *mut c_void) {
    if result != 0 || out.is_null() {
        return;
    }
    // SAFETY: the caller says so.
    let found = unsafe { out.read() };
    if let Some(ours) = by_address(found.addr()).or_else(|| calls::by_address(found.addr())) {
        ANSWERED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller says so.
        unsafe { out.write(std::ptr::with_exposed_provenance_mut(ours)) };
    }
}

fn by_address(address: usize) -> Option<usize> {
    let both = [(&REAL, get_proc_address as *const () as usize), (&REAL_V2, get_proc_address_v2 as *const () as usize)];
    both.into_iter().find(|(real, _)| real.address() == Some(address)).map(|(_, ours)| ours)
}
