//! Scopes for futures. A future's scope is entered at each poll, on whatever thread polls the future.

use std::pin::Pin;
use std::task::{Context as Waker, Poll};

use pin_project_lite::pin_project;

use crate::scope::Context;

/// Attaches a scope to a future, as `tracing`'s `Instrument` attaches a span.
pub trait FutureExt: Future + Sized {
    /// Runs this future in a scope called `name`, on whatever thread it is polled. The scope is inside the scopes that
    /// are open where this method is called.
    ///
    /// ```
    /// use memtrace::FutureExt;
    /// let answer = async { vec![0u8; 4096].len() }.memtrace("request");
    /// # drop(answer);
    /// ```
    fn memtrace(self, name: impl AsRef<str>) -> ScopedFuture<Self> {
        ScopedFuture { future: self, context: Context::current().below(name.as_ref()) }
    }
}

impl<F: Future> FutureExt for F {}

pin_project! {
    /// A future with a scope, from [`FutureExt::memtrace`].
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is awaited or polled"]
    pub struct ScopedFuture<F> {
        #[pin]
        future: F,
        context: Context,
    }
}

impl<F: Future> Future for ScopedFuture<F> {
    type Output = F::Output;
    fn poll(self: Pin<&mut Self>, waker: &mut Waker<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _scope = this.context.enter_task();
        this.future.poll(waker)
    }
}
