//! Futures whose work carries a scope, on whatever thread it is polled.

use std::pin::Pin;
use std::task::{Context as Waker, Poll};

use pin_project_lite::pin_project;

use crate::scope::Context;

/// Gives futures a scope of their own.
pub trait FutureExt: Future + Sized {
    /// Labels what this future allocates while it is polled `name`, below the scopes that are open
    /// where this is called. It stays right when the future moves between threads.
    ///
    /// ```
    /// use memtrace::FutureExt;
    /// let answer = async { vec![0u8; 4096].len() }.memtrace("request");
    /// # drop(answer);
    /// ```
    fn memtrace(self, name: impl AsRef<str>) -> Traced<Self> {
        Traced { future: self, context: Context::current().below(name.as_ref()) }
    }
}

impl<F: Future> FutureExt for F {}

pin_project! {
    /// A future with a scope; see [`FutureExt::memtrace`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Traced<F> {
        #[pin]
        future: F,
        context: Context,
    }
}

impl<F: Future> Future for Traced<F> {
    type Output = F::Output;
    fn poll(self: Pin<&mut Self>, waker: &mut Waker<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _scope = this.context.enter_task();
        this.future.poll(waker)
    }
}
