//! Pointers that the program passes to driver functions.
#![expect(unsafe_code, reason = "reads behind the caller's pointers")]

use std::ffi::{CStr, c_char, c_int};

use object::LittleEndian as LE;
use object::elf::{FileHeader64, SHT_NOBITS, SectionHeader64};

use super::driver::SUCCESS;

/// An input or output pointer among a driver function's arguments, possibly null. Hooks use it only during the call.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(super) struct CallerPtr<T>(*const T);

impl<T: Copy> CallerPtr<T> {
    /// Reads the value, if the pointer is not null. An output must be read only after the driver has written it.
    pub(super) fn read(self) -> Option<T> {
        // SAFETY: null, or valid for the driver to read or write during the call.
        unsafe { self.0.as_ref() }.copied()
    }

    /// Reads an output, if the call succeeded.
    pub(super) fn written(self, result: c_int) -> Option<T> {
        if result == SUCCESS { self.read() } else { None }
    }

    pub(super) fn overwrite(self, value: T) {
        // SAFETY: the pointer is null, or points to where the driver has written.
        if let Some(answer) = unsafe { self.0.cast_mut().as_mut() } {
            *answer = value;
        }
    }

    /// Like [`read`](Self::read), for an address that may be unaligned.
    pub(super) fn read_unaligned(self) -> Option<T> {
        // SAFETY: not null, so valid for the driver to read during the call.
        if self.0.is_null() { None } else { Some(unsafe { self.0.read_unaligned() }) }
    }

    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// A pointer that the program passed within a structure.
    pub(super) fn from_raw(pointer: *const T) -> Self {
        Self(pointer)
    }

    /// A pointer to a field, `offset` bytes into a struct.
    pub(super) fn part<U>(self, offset: usize) -> CallerPtr<U> {
        CallerPtr(self.0.wrapping_byte_add(offset).cast())
    }

    #[cfg(test)]
    pub(super) fn to(value: &T) -> Self {
        Self(value)
    }
}

/// The C string that the program passes; `None` if the pointer is null.
pub(super) fn text<'a>(start: *const c_char) -> Option<&'a CStr> {
    // SAFETY: not null, so a C string that is valid during the call.
    if start.is_null() { None } else { Some(unsafe { CStr::from_ptr(start) }) }
}

/// A fat binary in memory that the driver has accepted. Its header says how long the rest is.
pub(super) fn fat_binary<'a>(start: *const u8) -> Option<&'a [u8]> {
    let header = CallerPtr::<u8>::from_raw(start);
    let header_size = header.part::<u16>(6).read_unaligned()?;
    let rest = usize::try_from(header.part::<u64>(8).read_unaligned()?).ok()?;
    let size = rest.checked_add(usize::from(header_size)).filter(|size| isize::try_from(*size).is_ok())?;
    // SAFETY: the driver has read the file up to this size.
    Some(unsafe { std::slice::from_raw_parts(start, size) })
}

/// Headers and sections of an ELF file in memory that the driver has accepted. `None` if the file is not 64-bit.
pub(super) fn elf_file<'a>(start: *const u8) -> Option<&'a [u8]> {
    const SECTION: u64 = size_of::<SectionHeader64<LE>>() as u64;
    const CLASS_64: u8 = 2;
    // Both classes of files (32 and 64 bits) have a header that is long enough to contain this byte.
    let class = CallerPtr::from_raw(start).part::<u8>(4).read()?;
    let header =
        CallerPtr::<FileHeader64<LE>>::from_raw(start.cast()).read_unaligned().filter(|_| class == CLASS_64)?;
    let (table, count) = (header.e_shoff.get(LE), u64::from(header.e_shnum.get(LE)));
    let mut end = table.checked_add(count * SECTION)?;
    for at in (table..end).step_by(SECTION as usize) {
        let section = CallerPtr::<u8>::from_raw(start).part::<SectionHeader64<LE>>(usize::try_from(at).ok()?);
        let section = section.read_unaligned()?;
        if section.sh_type.get(LE) != SHT_NOBITS {
            end = end.max(section.sh_offset.get(LE).checked_add(section.sh_size.get(LE))?);
        }
    }
    // SAFETY: the driver has read the file up to `end`, that is headers and sections.
    Some(unsafe { std::slice::from_raw_parts(start, usize::try_from(end).ok()?) })
}
