//! Writes to GOT slots on read-only pages (RELRO), and reads and tests of memory that may be protected.
#![expect(unsafe_code, reason = "memory of loaded objects is changed in place")]

use std::ffi::c_void;

use crate::errno::last_error;
use crate::record::own_pages::page_size;

/// Writes a word to a page that the loader makes read-only after relocation. Returns false on failure.
///
/// If the page is still writable, the loader is not done with it, and only the loader may change its protection. So the
/// first attempt does not change it: it asks the kernel to write, which fails where a store would crash. If that fails,
/// the loader is done, and the protection may be changed.
pub(in crate::hook) fn write_word(slot: *mut usize, value: usize) -> bool {
    if writes(slot, value) {
        return true;
    }
    if !protect(slot, libc::PROT_READ | libc::PROT_WRITE) {
        return false;
    }
    let written = writes(slot, value);
    protect(slot, libc::PROT_READ);
    written
}

/// Writes a word if its page is writable, by a system call that fails where a store would crash. Some containers and
/// emulators refuse that call. There, the page is tested and then written with a store.
fn writes(slot: *mut usize, value: usize) -> bool {
    if kernel_writes(slot, value) {
        return true;
    }
    if last_error() == libc::EFAULT || !is_writable(slot) {
        return false;
    }
    // SAFETY: a word of a loaded object, on a page that was writable just now.
    unsafe { slot.write_volatile(value) };
    true
}

fn kernel_writes(slot: *mut usize, value: usize) -> bool {
    let from = libc::iovec { iov_base: (&raw const value).cast_mut().cast::<c_void>(), iov_len: size_of::<usize>() };
    let to = libc::iovec { iov_base: slot.cast(), iov_len: size_of::<usize>() };
    // SAFETY: takes no arguments.
    let pid = unsafe { libc::getpid() };
    // SAFETY: reads a local variable; the kernel checks the address that it writes to.
    unsafe { libc::process_vm_writev(pid, &from, 1, &to, 1, 0) == size_of::<usize>() as isize }
}

/// Copies words of a page. Copies nothing if not all of them can be read.
pub(super) fn copy_from(address: usize, words: &mut [usize]) -> bool {
    if kernel_copies(address, words) {
        return true;
    }
    if last_error() == libc::EFAULT || !is_readable(address) {
        return false;
    }
    for (word, at) in words.iter_mut().zip((address..).step_by(size_of::<usize>())) {
        // SAFETY: a word of a loaded object, on a page that was readable just now.
        *word = unsafe { (at as *const usize).read_volatile() };
    }
    true
}

/// Whether a load of the word at this address would succeed. To find out, this function makes a futex wait with a
/// timeout of zero, for which the kernel reads the word.
fn is_readable(address: usize) -> bool {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel checks the address.
    let outcome = unsafe { libc::syscall(libc::SYS_futex, address, operation, 0, &raw const no_time) };
    outcome == 0 || last_error() == libc::EAGAIN || last_error() == libc::ETIMEDOUT
}

fn kernel_copies(address: usize, words: &mut [usize]) -> bool {
    let to = libc::iovec { iov_base: words.as_mut_ptr().cast::<c_void>(), iov_len: size_of_val(words) };
    let from = libc::iovec { iov_base: address as *mut c_void, iov_len: size_of_val(words) };
    // SAFETY: takes no arguments.
    let pid = unsafe { libc::getpid() };
    // SAFETY: writes to the slice; the kernel checks the address that it reads from.
    unsafe { libc::process_vm_readv(pid, &to, 1, &from, 1, 0) == size_of_val(words) as isize }
}

/// Whether a store to this word would succeed. To find out, a futex operation makes the kernel add 0 atomically to the
/// first half of the word. The operation wakes no thread, because none waits there.
pub(super) fn is_writable(slot: *mut usize) -> bool {
    const ADD_NOTHING: libc::c_int = libc::FUTEX_OP_ADD << 28;
    let operation = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel checks the address, and the operation changes nothing.
    unsafe { libc::syscall(libc::SYS_futex, slot, operation, 0, 0, slot, ADD_NOTHING) >= 0 }
}

fn protect(slot: *mut usize, protection: i32) -> bool {
    let page = page_size();
    let start = slot.map_addr(|address| address & !(page - 1));
    // SAFETY: the page belongs to a loaded object and was read-only. It stays readable throughout.
    unsafe { libc::mprotect(start.cast(), page, protection) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the kernel refuse these reads and writes for this thread, as some containers do.
    fn refuse() {
        let load_number = libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
        let skip_if = |number, jt, jf| libc::sock_filter { code: 0x15, jt, jf, k: number as u32 };
        let answer = |k| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k };
        let refuse = answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
        let read = skip_if(libc::SYS_process_vm_readv, 1, 0);
        let write = skip_if(libc::SYS_process_vm_writev, 0, 1);
        let mut filter = [load_number, read, write, refuse, answer(libc::SECCOMP_RET_ALLOW)];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: takes numbers.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
        // SAFETY: the program is valid while the kernel copies it. It applies only to this thread.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) }, 0);
    }

    fn page(protection: i32) -> *mut usize {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which is never unmapped.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), page_size(), protection, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        page.cast()
    }

    fn writes_everywhere() {
        for protection in [libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ] {
            let slot = page(protection);
            assert!(write_word(slot, 7));
            // SAFETY: the page is readable.
            assert_eq!(unsafe { slot.read_volatile() }, 7);
            assert_eq!(is_writable(slot), protection & libc::PROT_WRITE != 0, "the protection is as it was");
        }
    }

    fn reads_what_can_be_read() {
        for (protection, readable) in [(libc::PROT_READ | libc::PROT_WRITE, true), (libc::PROT_NONE, false)] {
            let page = page(protection);
            if readable {
                // SAFETY: the page is writable, and has more than eight words.
                unsafe { page.wrapping_add(7).write(5) };
            }
            let mut words = [1; 8];
            assert_eq!(copy_from(page.addr(), &mut words), readable);
            assert_eq!(words, if readable { [0, 0, 0, 0, 0, 0, 0, 5] } else { [1; 8] });
        }
    }

    #[test]
    fn words_are_written_to_pages_that_are_writable_and_to_those_that_are_not() {
        writes_everywhere();
    }

    #[test]
    fn pages_that_cannot_be_read_are_left_out() {
        reads_what_can_be_read();
    }

    #[test]
    fn words_are_read_and_written_where_the_kernel_refuses_to() {
        let refused = || {
            refuse();
            let page = page(libc::PROT_READ | libc::PROT_WRITE);
            assert!(!kernel_writes(page, 1) && !kernel_copies(page.addr(), &mut [0]));
            writes_everywhere();
            reads_what_can_be_read();
        };
        std::thread::spawn(refused).join().unwrap();
    }
}
