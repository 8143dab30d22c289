//! Substitute for `kept` on systems that do not report the end of a thread: the state is in the thread-local variable.

use std::cell::RefCell;
use std::marker::PhantomData;

pub(crate) trait PerThread: Copy + 'static {
    const EMPTY: &'static Self;
    const POOL: &'static Pool<Self>;
}

#[derive(Debug)]
pub(crate) struct Pool<T>(PhantomData<T>);

impl<T> Pool<T> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

#[derive(Debug)]
pub(crate) struct Place<T>(RefCell<T>);

impl<T: PerThread> Place<T> {
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(*T::EMPTY))
    }

    pub(crate) fn with<R>(&self, work: impl FnOnce(Option<&mut T>) -> R) -> R {
        work(self.0.try_borrow_mut().ok().as_deref_mut())
    }
}
