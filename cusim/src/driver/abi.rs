//! How the driver's functions take arguments and give answers.

use std::ffi::{CStr, c_char};

use crate::code::{Answer, Code, INVALID_VALUE};

/// Exported functions whose bodies give an [`Answer`].
macro_rules! driver {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(super) extern "C" fn $name($($arg: $type),*) -> $crate::code::Code {
            #[allow(clippy::unnecessary_wraps, clippy::too_many_arguments, reason = "all bodies have one shape")]
            fn body($($arg: $type),*) -> $crate::code::Answer $body
            $crate::driver::abi::code(body($($arg),*))
        }
    )* };
}

/// The same functions under the names that programs get which were built for a default stream per thread:
/// a stream of 0 is then the thread's own.
macro_rules! per_thread {
    ($(fn $name:ident = $base:ident($($arg:ident: $type:ty),*; stream $(; $($rest:ident: $rest_type:ty),*)?);)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type,)* stream: u64 $($(, $rest: $rest_type)*)?) -> $crate::code::Code {
            $base($($arg,)* $crate::driver::thread::own_stream(stream) $($(, $rest)*)?)
        }
    )* };
}

/// The same functions under other names.
macro_rules! same {
    ($(fn $name:ident = $base:ident($($arg:ident: $type:ty),*);)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) -> $crate::code::Code {
            $base($($arg),*)
        }
    )* };
}

pub(super) fn code(answer: Answer) -> Code {
    answer.err().unwrap_or(0)
}

/// The other way round: for functions that call another one.
pub(super) fn answer(code: Code) -> Answer {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// Where a function writes a result.
#[repr(transparent)]
pub(super) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    pub(super) fn null() -> Self {
        Self(std::ptr::null_mut())
    }

    /// An error if the pointer is null: for calls that must not do anything then.
    pub(super) fn check(self) -> Answer {
        if self.0.is_null() { Err(INVALID_VALUE) } else { Ok(()) }
    }

    pub(super) fn address(self) -> usize {
        self.0.addr()
    }

    /// Writes; a null pointer is an error.
    pub(super) fn set(self, value: T) -> Answer {
        self.check()?;
        // SAFETY: a caller of the driver passes a pointer to a `T` that it owns.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Writes unless the pointer is null.
    pub(super) fn offer(self, value: T) {
        let _ = self.set(value);
    }

    /// Reads what the caller put there.
    pub(super) fn get(self) -> Answer<T>
    where
        T: Copy,
    {
        // SAFETY: as in `set`; here the value is one that the caller has written.
        unsafe { self.0.as_ref() }.copied().ok_or(INVALID_VALUE)
    }

    /// The same pointer to something else: for arguments whose type an attribute decides.
    pub(super) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// The `index`-th element behind the pointer.
    pub(super) fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }
}

/// Text that a caller passes.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Text(*const c_char);

impl Text {
    pub(super) fn get<'a>(self) -> Answer<&'a CStr> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: a caller of the driver passes text that ends with a zero byte, and keeps it during the
        // call; nobody keeps the reference for longer.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }

    /// The first bytes of what may not be text.
    pub(super) fn start(self) -> Answer<[u8; 4]> {
        Out(self.0.cast_mut().cast()).get()
    }
}
