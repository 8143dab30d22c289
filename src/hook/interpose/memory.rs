//! Writes to GOT slots on read-only pages (RELRO); reads and tests of memory that may be protected.
#![expect(unsafe_code, reason = "memory of loaded objects is changed in place")]

use std::ffi::c_void;

use crate::errno::last_error;
use crate::record::pages::page_size;

/// Writes a word to a page that the loader makes read-only after relocation. Returns false on failure.
///
/// The page may still be writable, and then its protection is the loader's to change. So the kernel writes first, which
/// fails where a store would crash; the protection is changed only if that fails, when the loader is done.
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
    // SAFETY: takes no arguments.
    let pid = unsafe { libc::getpid() };
    // SAFETY: reads a local variable; the kernel checks the address that it writes to.
    unsafe { libc::process_vm_writev(pid, &from, 1, &to, 1, 0) == size_of::<usize>() as isize }
}

/// Copies words from an address, or nothing if they cannot all be read.
pub(super) fn copy_from(address: usize, words: &mut [usize]) -> bool {
    let to = libc::iovec { iov_base: words.as_mut_ptr().cast::<c_void>(), iov_len: size_of_val(words) };
    let from = libc::iovec { iov_base: address as *mut c_void, iov_len: size_of_val(words) };
    // SAFETY: takes no arguments.
    let pid = unsafe { libc::getpid() };
    // SAFETY: writes to the slice; the kernel checks the address that it reads from.
    unsafe { libc::process_vm_readv(pid, &to, 1, &from, 1, 0) == size_of_val(words) as isize }
}

/// Whether a store to this word would succeed. The kernel adds 0 to its first half, atomically, for which a futex has an
/// operation; nobody waits there.
pub(super) fn is_writable(slot: *mut usize) -> bool {
    const ADD_NOTHING: libc::c_int = libc::FUTEX_OP_ADD << 28;
    let operation = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel checks the address, and the operation changes nothing.
    unsafe { libc::syscall(libc::SYS_futex, slot, operation, 0, 0, slot, ADD_NOTHING) >= 0 }
}

fn protect(slot: *mut usize, protection: i32) -> bool {
    let page = page_size();
    let start = slot.map_addr(|address| address & !(page - 1));
    // SAFETY: the page belongs to a loaded object and was read-only; it stays readable throughout.
    unsafe { libc::mprotect(start.cast(), page, protection) == 0 }
}
