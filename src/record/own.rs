//! Boundary between the program's memory and own memory. Each public function does its work inside [`own`].

use super::fork;
use super::guard::{Own, own_work};
use crate::error::Error;

/// Runs memtrace's work for its caller. What the work allocates is own memory, neither recorded nor measured. Callbacks
/// of the program, and drops of its values, belong outside.
pub(crate) fn own<T: Leaves>(f: impl FnOnce() -> T) -> T {
    fork::watch();
    let work = own_work();
    let made = f();
    drop(work);
    made.leave()
}

/// A result of [`own`]. Dropping it outside frees no memory that was allocated inside.
pub(crate) trait Leaves: Sized {
    fn leave(self) -> Self {
        self
    }
}

// These types own no memory.
impl Leaves for () {}
impl Leaves for bool {}
impl Leaves for u32 {}
impl Leaves for usize {}
impl Leaves for u64 {}

/// An [`Own`] drops its value as own work.
impl<T> Leaves for Own<T> {}

/// Copied to the caller's memory.
impl Leaves for Error {
    fn leave(self) -> Self {
        Own::new(self).clone()
    }
}

/// Copied to the caller's memory.
impl Leaves for String {
    fn leave(self) -> Self {
        (*Own::new(self)).clone()
    }
}

impl<T: Leaves, E: Leaves> Leaves for Result<T, E> {
    fn leave(self) -> Self {
        self.map(T::leave).map_err(E::leave)
    }
}

impl<T: Leaves> Leaves for Option<T> {
    fn leave(self) -> Self {
        self.map(T::leave)
    }
}

impl<T: Leaves, U: Leaves> Leaves for (T, U) {
    fn leave(self) -> Self {
        (self.0.leave(), self.1.leave())
    }
}
