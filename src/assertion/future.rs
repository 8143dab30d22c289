//! Measurement of a future: active at each poll, on whatever thread polls it.

use std::pin::Pin;
use std::task::{Context as Waker, Poll};

use pin_project_lite::pin_project;

use super::measure::{Measurement, Opened};
use crate::error::{CANNOT_MEASURE, Error};
use crate::scope::ScopeGuard;

/// Runs a future and measures what it allocates while it is polled, on whatever thread. Tasks that it spawns count if
/// they get the context: `tokio::spawn(task.memtrace("name"))`.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// # fn block_on<T>(f: impl Future<Output = T>) -> T {
/// #     let waker = std::task::Waker::noop();
/// #     match std::pin::pin!(f).poll(&mut std::task::Context::from_waker(waker)) {
/// #         std::task::Poll::Ready(value) => value,
/// #         std::task::Poll::Pending => unreachable!(),
/// #     }
/// # }
/// # block_on(async {
/// let m = memtrace::measure_async(async { vec![0u8; 4096] }).await;
/// assert_eq!((m.peak, m.leaked), (4096, 4096));
/// # })
/// ```
///
/// # Panics
/// Like [`measure`](crate::measure).
pub async fn measure_async<F: Future>(future: F) -> Measurement<F::Output> {
    try_measure_async(future).await.unwrap_or_else(|error| panic!("{error}"))
}

/// [`measure_async`](crate::measure_async) that returns an error instead of panicking.
///
/// # Errors
/// Like [`try_measure`](crate::try_measure), at the first poll, before `future` runs; or at any poll, if too many
/// scopes are open.
pub fn try_measure_async<F: Future>(future: F) -> MeasureFuture<F> {
    MeasureFuture { future, opened: None }
}

pin_project! {
    /// A future that is measured, from [`try_measure_async`](crate::try_measure_async).
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is awaited or polled"]
    pub struct MeasureFuture<F> {
        #[pin]
        future: F,
        opened: Option<Opened>,
    }
}

impl<F: Future> Future for MeasureFuture<F> {
    type Output = Result<Measurement<F::Output>, Error>;
    fn poll(self: Pin<&mut Self>, waker: &mut Waker<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.opened.is_none() {
            *this.opened = Some(Opened::begin(false)?);
        }
        let Some(opened) = this.opened.as_ref() else { return Poll::Pending };
        let Some(active) = ScopeGuard::of_measure(opened.0.id) else {
            return Poll::Ready(Err(Error::wrong(CANNOT_MEASURE)));
        };
        let polled = this.future.poll(waker);
        drop(active);
        polled.map(|value| Ok(Measurement { value, memory: opened.end() }))
    }
}
