//! The door between the program's memory and memtrace's own: each public function does its work behind [`own`], so that
//! nothing inside has to think of it.

use super::fork;
use super::guard::{Own, own_work};
use crate::error::Error;

/// Does what memtrace does for its caller: what it allocates and frees is memtrace's own, neither recorded nor measured. Code
/// of the program's is called outside, and what it gave away is dropped there.
pub(crate) fn own<T: Leaves>(f: impl FnOnce() -> T) -> T {
    fork::watch();
    let work = own_work();
    let made = f();
    drop(work);
    made.leave()
}

/// What may come out through the door, because whoever drops it outside frees nothing there that was allocated inside.
pub(crate) trait Leaves: Sized {
    fn leave(self) -> Self {
        self
    }
}

// They have no memory.
impl Leaves for () {}
impl Leaves for bool {}
impl Leaves for usize {}
impl Leaves for u64 {}

/// It frees its memory as own work.
impl<T> Leaves for Own<T> {}

/// It is made again outside.
impl Leaves for Error {
    fn leave(self) -> Self {
        let theirs = self.clone();
        let _work = own_work();
        drop(self);
        theirs
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
