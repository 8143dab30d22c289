//! Pointers that the program passes to driver functions.
#![expect(unsafe_code, reason = "reads behind the caller's pointers")]

use std::ffi::c_int;

use super::driver::SUCCESS;

/// An input or output pointer among a driver function's arguments, possibly null. Hooks use it only during the call.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(super) struct CallerPtr<T>(*const T);

impl<T: Copy> CallerPtr<T> {
    /// Reads the value, if the pointer is not null. An output is valid once the driver has written it.
    pub(super) fn read(self) -> Option<T> {
        // SAFETY: null, or valid for the driver to read or write.
        unsafe { self.0.as_ref() }.copied()
    }

    /// Reads an output, if the call succeeded.
    pub(super) fn written(self, result: c_int) -> Option<T> {
        if result == SUCCESS { self.read() } else { None }
    }

    pub(super) fn overwrite(self, value: T) {
        // SAFETY: null, or where the driver has written.
        if let Some(answer) = unsafe { self.0.cast_mut().as_mut() } {
            *answer = value;
        }
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
