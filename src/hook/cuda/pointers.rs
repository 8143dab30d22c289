//! Pointers among the arguments of the driver's functions.
#![expect(unsafe_code, reason = "reads behind the caller's pointers")]

use std::ffi::c_int;

use super::driver::SUCCESS;

/// A pointer that the program gave to the driver: null, or where a description for the driver lies, or a place for the
/// driver's answer. Hooks get these as arguments, and keep them no longer than the call.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(super) struct CallerPtr<T>(*const T);

impl<T: Copy> CallerPtr<T> {
    /// What lies there, if the pointer is not null. An answer is there once the driver has written it.
    pub(super) fn read(self) -> Option<T> {
        // SAFETY: null, or valid for the driver, and so for reading.
        unsafe { self.0.as_ref() }.copied()
    }

    /// What the driver has written there, if it succeeded.
    pub(super) fn written(self, result: c_int) -> Option<T> {
        if result == SUCCESS { self.read() } else { None }
    }

    /// Writes in the place of an answer of the driver's.
    pub(super) fn overwrite(self, value: T) {
        // SAFETY: null, or where the driver has written.
        if let Some(answer) = unsafe { self.0.cast_mut().as_mut() } {
            *answer = value;
        }
    }

    /// A part of a description, so many bytes from its beginning.
    pub(super) fn part<U>(self, offset: usize) -> CallerPtr<U> {
        CallerPtr(self.0.wrapping_byte_add(offset).cast())
    }

    #[cfg(test)]
    pub(super) fn to(value: &T) -> Self {
        Self(value)
    }
}
