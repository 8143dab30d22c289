//! Words in pages that may be read-only.
#![expect(unsafe_code, reason = "memory of loaded objects is changed in place")]

use std::ffi::c_void;

use super::elf;
use crate::errno::last_error;

/// Writes a word of a page that the loader makes read-only once it is done with the object; false if that
/// cannot be done.
///
/// The page may be writable still, and its rights the loader's to change: so the kernel writes, which
/// fails where we would crash, and rights are changed only after that, when the loader is done.
pub(in crate::hook) fn write_word(slot: *mut usize, value: usize) -> bool {
    if kernel_writes(slot, value) {
        return true;
    }
    if last_error() != libc::EFAULT || !protect(slot, libc::PROT_READ | libc::PROT_WRITE) {
        return false;
    }
    let written = kernel_writes(slot, value);
    protect(slot, libc::PROT_READ);
    written
}

fn kernel_writes(slot: *mut usize, value: usize) -> bool {
    let from = libc::iovec { iov_base: (&raw const value).cast_mut().cast::<c_void>(), iov_len: size_of::<usize>() };
    let to = libc::iovec { iov_base: slot.cast(), iov_len: size_of::<usize>() };
    // SAFETY: asks for a number.
    let pid = unsafe { libc::getpid() };
    // SAFETY: reads our own word; the kernel checks where it writes to.
    unsafe { libc::process_vm_writev(pid, &from, 1, &to, 1, 0) == size_of::<usize>() as isize }
}

fn protect(slot: *mut usize, protection: i32) -> bool {
    let page = elf::page_size();
    let start = slot.map_addr(|address| address & !(page - 1));
    // SAFETY: the page belongs to a loaded object; it stays readable throughout, and writable only
    // becomes what was read-only.
    unsafe { libc::mprotect(start.cast(), page, protection) == 0 }
}
