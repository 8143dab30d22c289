//! A reserved range of addresses. It costs host memory only where it was touched, and forgets what is
//! given back.

use crate::config::Fill;
use crate::own::{PAGE, map};

/// A device's addresses: readable and writable where a segment lies.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) base: u64,
    pub(crate) length: u64,
}

impl Span {
    /// Reserves at least that many addresses; `None` if there are not as many. `align` is a power of two or 0.
    pub(crate) fn reserve(length: u64, align: u64) -> Option<Self> {
        let align = usize::try_from(align).ok()?.max(ALIGN);
        let length = usize::try_from(length).ok()?.checked_next_multiple_of(ALIGN)?;
        let start = map(length.checked_add(align)?, libc::PROT_NONE)?.as_ptr() as usize;
        let base = start.next_multiple_of(align);
        unmap(start, base - start);
        unmap(base + length, start + align - base);
        // One touched byte must not cost 2 MiB of the host's memory.
        // SAFETY: the mapping was made just now.
        unsafe { libc::madvise(base as *mut _, length, libc::MADV_NOHUGEPAGE) };
        Some(Self { base: base as u64, length: length as u64 })
    }

    /// Gives back what `reserve` gave; nobody may use it any more.
    pub(crate) fn release(&self) {
        unmap(self.base as usize, self.length as usize);
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        address >= self.base && address - self.base < self.length
    }

    /// Makes pages usable; they read as zero. False if the kernel has no more.
    pub(crate) fn open(address: u64, length: u64) -> bool {
        // SAFETY: `address` lies in a span and on a page; nobody else changes its protection.
        unsafe { libc::mprotect(address as *mut _, length as usize, libc::PROT_READ | libc::PROT_WRITE) == 0 }
    }

    /// Gives pages back and closes them.
    pub(crate) fn close(address: u64, length: u64) {
        forget(address, length);
        // SAFETY: as in `open`.
        unsafe { libc::mprotect(address as *mut _, length as usize, libc::PROT_NONE) };
    }

    /// Makes a range read as zero, and gives back the whole pages in it.
    pub(crate) fn zero(address: u64, length: u64) {
        let page = PAGE as u64;
        let end = address + length;
        let (first, last) = (address.next_multiple_of(page), end / page * page);
        if first >= last {
            return write(address, length, 0);
        }
        write(address, first - address, 0);
        forget(first, last - first);
        write(last, end - last, 0);
    }

    /// What a new block of these bytes holds; random bytes follow from `seed`.
    pub(crate) fn fill(address: u64, length: u64, fill: Fill, seed: u64) {
        match fill {
            Fill::Zeros => {}
            Fill::Ones => write(address, length, 0xFF),
            Fill::Random => scramble(address, length, seed),
        }
    }
}

/// Segments start on multiples of 2 MiB.
const ALIGN: usize = 2 << 20;

fn unmap(start: usize, length: usize) {
    if length > 0 {
        // SAFETY: the callers give whole pages of mappings of ours that nobody uses.
        unsafe { libc::munmap(start as *mut _, length) };
    }
}

fn forget(address: u64, length: u64) {
    // SAFETY: whole pages of a private mapping of ours, in which no live block lies.
    unsafe { libc::madvise(address as *mut _, length as usize, libc::MADV_DONTNEED) };
}

fn write(address: u64, length: u64, byte: u8) {
    // SAFETY: the callers give a range within one open segment.
    unsafe { std::ptr::write_bytes(address as *mut u8, byte, length as usize) };
}

/// Writes what a multiplicative generator gives, 8 bytes at a time; blocks are multiples of 8 long.
fn scramble(address: u64, length: u64, seed: u64) {
    let mut state = seed | 1;
    for at in (address..address + length / 8 * 8).step_by(8) {
        state = state.wrapping_mul(0x2545_F491_4F6C_DD1D).rotate_left(17);
        // SAFETY: within one open segment, and aligned: blocks start on multiples of 256.
        unsafe { (at as *mut u64).write(state) };
    }
}
