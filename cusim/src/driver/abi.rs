//! Arguments and results of the driver's C functions.

use std::ffi::{CStr, c_char};

use super::process::with;
use crate::SimMachine;
use crate::code::{Answer, Code, INVALID_VALUE, demand};

/// Defines exported functions whose bodies, blocks or `=> expression;`, return an [`Answer`].
///
/// `| alias()` exports the same function under another name, `| alias(stream)` as the variant for programs that were
/// built with a per-thread default stream: there a null `stream` is the thread's own.
macro_rules! driver {
    ($(
        $(#[$doc:meta])*
        fn $name:ident $args:tt $(| $alias:ident($($stream:ident)?))* $($body:block)? $(=> $result:expr;)?
    )*) => { $(
        driver_function! { $(#[$doc])* $name $args $($body)? $({ $result })? }
        $(driver_alias! { $alias $name $args $($stream)? })*
    )* };
}

macro_rules! driver_function {
    ($(#[$doc:meta])* $name:ident ($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(super) extern "C" fn $name($($arg: $type),*) -> $crate::code::Code {
            #[allow(clippy::unnecessary_wraps, clippy::too_many_arguments, reason = "all bodies have one shape")]
            fn body($($arg: $type),*) -> $crate::code::Answer $body
            let answer = body($($arg),*);
            $crate::driver::process::linger();
            $crate::driver::abi::code(answer)
        }
    };
}

macro_rules! driver_alias {
    ($alias:ident $name:ident ($($arg:ident: $type:ty),* $(,)?) $($stream:ident)?) => {
        #[unsafe(no_mangle)]
        extern "C" fn $alias($($arg: $type),*) -> $crate::code::Code {
            $(let $stream = $crate::driver::thread::own_stream($stream);)?
            $name($($arg),*)
        }
    };
}

/// `CUmemAllocationType`.
pub(super) const ALLOCATION_PINNED: u32 = 1;
pub(super) const ALLOCATION_MANAGED: u32 = 2;
/// `CUmemLocationType`.
pub(super) const LOCATION_NONE: u32 = 0;
pub(super) const LOCATION_DEVICE: u32 = 1;
pub(super) const LOCATION_HOST: u32 = 2;
pub(super) const LOCATION_HOST_NUMA: u32 = 3;
pub(super) const LOCATION_LAST: u32 = 4;

pub(super) fn code(answer: Answer) -> Code {
    answer.err().unwrap_or(0)
}

/// The inverse of [`code`], for functions that call another one.
pub(super) fn answer(code: Code) -> Answer {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// A pointer argument, to an output or an input.
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

    /// Fails if the pointer is null.
    pub(super) fn check(self) -> Answer {
        if self.0.is_null() { Err(INVALID_VALUE) } else { Ok(()) }
    }

    /// Writes the result of an action, which does not run if the pointer is null.
    pub(super) fn set_with(self, action: impl FnOnce(&mut SimMachine) -> Answer<T>) -> Answer {
        self.check()?;
        self.set(with(action)?)
    }

    pub(super) fn address(self) -> usize {
        self.0.addr()
    }

    /// Writes a value; fails if the pointer is null.
    pub(super) fn set(self, value: T) -> Answer {
        self.check()?;
        // SAFETY: the caller passes a pointer to a `T` that it owns.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Writes a value unless the pointer is null.
    pub(super) fn offer(self, value: T) {
        let _ = self.set(value);
    }

    /// Reads an input.
    pub(super) fn get(self) -> Answer<T>
    where
        T: Copy,
    {
        // SAFETY: the caller passes a pointer to an initialized `T`.
        unsafe { self.0.as_ref() }.copied().ok_or(INVALID_VALUE)
    }

    /// Changes the type, for arguments whose type depends on an attribute.
    pub(super) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// A pointer to the `index`-th element.
    pub(super) fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }
}

/// A C string argument.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct CallerText(*const c_char);

impl CallerText {
    pub(super) fn get<'a>(self) -> Answer<&'a CStr> {
        demand(!self.0.is_null())?;
        // SAFETY: the caller passes a C string that lives during the call; no reference outlives it.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }

    /// The first bytes of data that may not be text.
    pub(super) fn start(self) -> Answer<[u8; 4]> {
        Out(self.0.cast_mut().cast()).get()
    }
}
