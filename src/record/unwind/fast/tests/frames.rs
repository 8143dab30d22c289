//! Frames that compilers emit, and some that they do not emit.
#![expect(unsafe_code, reason = "calls functions written in assembly")]

use std::ffi::c_void;
use std::ptr::null_mut;

use super::{Both, note, only_one, seen_in};

pub(super) type Callback = extern "C" fn(*mut c_void);

unsafe extern "C" {
    /// Takes this many bytes (a multiple of 16) from the stack, like `alloca`.
    pub(super) fn memtrace_alloca(callback: Callback, data: *mut c_void, bytes: usize);
    /// Realigns its frame like GCC. On x86-64 the CFA is then in memory.
    pub(super) fn memtrace_realigned(callback: Callback, data: *mut c_void);
    /// Keeps a number in the frame pointer during its call.
    pub(super) fn memtrace_fp_is_a_number(callback: Callback, data: *mut c_void);
    /// Its CFA is relative to another register.
    pub(super) fn memtrace_cfa_from_another(callback: Callback, data: *mut c_void);
    /// Ends with its call. The code after it has another frame.
    fn memtrace_ends_with_a_call(callback: Callback, data: *mut c_void);
    /// Has no CFI.
    fn memtrace_without_cfi(callback: Callback, data: *mut c_void);
    /// Calls on another stack that ends at `top`.
    fn memtrace_on_stack(callback: Callback, data: *mut c_void, top: *mut c_void);
}

#[cfg(target_arch = "x86_64")]
#[path = "frames_x86_64.rs"]
pub(super) mod assembly;
#[cfg(target_arch = "aarch64")]
#[path = "frames_aarch64.rs"]
pub(super) mod assembly;

#[test]
fn frames_of_a_size_known_at_run_time_are_proven() {
    for bytes in [0, 16, 160, 4096, 100_000] {
        // SAFETY: keeps the ABI, and the size is a multiple of 16.
        only_one(seen_in(|| unsafe { memtrace_alloca(note, null_mut(), bytes) })).assert_proven();
    }
}

#[test]
fn realigned_frames_of_c_are_proven() {
    // SAFETY: keeps the ABI.
    only_one(seen_in(|| unsafe { memtrace_realigned(note, null_mut()) })).assert_proven();
}

#[test]
fn realigned_frames_of_rust_are_proven() {
    #[repr(align(64))]
    struct Aligned([u8; 200]);
    let words = std::hint::black_box(Aligned([1; 200]));
    only_one(seen_in(|| note(null_mut()))).assert_proven();
    assert_eq!(std::hint::black_box(&words).0[7], 1);
}

#[test]
fn a_number_in_the_frame_pointer_is_no_frame_pointer() {
    // SAFETY: keeps the ABI.
    only_one(seen_in(|| unsafe { memtrace_fp_is_a_number(note, null_mut()) })).assert_proven();
}

#[test]
fn a_frame_is_that_of_the_call_not_of_what_follows_it() {
    // SAFETY: keeps the ABI.
    only_one(seen_in(|| unsafe { memtrace_ends_with_a_call(note, null_mut()) })).assert_proven();
}

#[test]
fn a_frame_that_is_counted_from_another_register_is_left_to_libgcc() {
    // SAFETY: keeps the ABI.
    only_one(seen_in(|| unsafe { memtrace_cfa_from_another(note, null_mut()) })).assert_not_proven();
}

#[test]
fn code_without_call_frame_information_is_left_to_libgcc() {
    // SAFETY: keeps the ABI.
    only_one(seen_in(|| unsafe { memtrace_without_cfi(note, null_mut()) })).assert_not_proven();
}

/// The stacks taken on a stack that ends at `top`.
fn seen_on_stack(top: *mut u8) -> Both {
    // SAFETY: keeps the ABI; callers pass the end of a large, aligned mapping that nobody else uses.
    only_one(seen_in(|| unsafe { memtrace_on_stack(note, null_mut(), top.cast()) }))
}

#[test]
fn another_stack_is_left_to_libgcc_even_if_it_lies_in_the_threads_own() {
    #[repr(align(16))]
    struct Stack([u8; 262_144]);
    let top = |stack: &mut Stack| stack.0.as_mut_ptr_range().end;
    seen_on_stack(top(&mut Box::new(Stack([0; 262_144])))).assert_not_proven();
    seen_on_stack(top(&mut Stack([0; 262_144]))).assert_not_proven();
}

#[test]
fn another_stack_below_the_threads_own_is_left_to_libgcc() {
    let (size, below) = (1 << 18, std::ptr::without_provenance_mut(0x1000_0000));
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: maps new memory.
    let memory = unsafe { libc::mmap(below, size, protection, flags, -1, 0) };
    assert!(memory != libc::MAP_FAILED && memory.addr() < (&raw const size).addr());
    let seen = seen_on_stack(memory.cast::<u8>().wrapping_add(size));
    // SAFETY: not used any more.
    unsafe { libc::munmap(memory, size) };
    seen.assert_not_proven();
}

#[test]
fn callbacks_of_c_are_proven() {
    extern "C" fn compare(a: *const c_void, b: *const c_void) -> i32 {
        note(null_mut());
        // SAFETY: `qsort` passes two of the numbers below.
        let a = unsafe { a.cast::<u32>().read() };
        // SAFETY: as above.
        let b = unsafe { b.cast::<u32>().read() };
        a.cmp(&b) as i32
    }
    let mut numbers = [3u32, 1, 2];
    // SAFETY: an array of three four-byte numbers.
    let seen = seen_in(|| unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 3, 4, Some(compare)) });
    assert_eq!(numbers, [1, 2, 3]);
    assert!(seen.len() >= 2);
    seen.iter().for_each(|both| both.assert_proven());
}
