//! Assertions for tests.

/// Yields the value of an expression, and panics if the calling thread held more than a limit at
/// once while it was evaluated.
///
/// The limit is text like `"512 MiB"` or a number of bytes. `?` inside the expression works. What is
/// counted is what [`measure`](fn@crate::measure) counts: blocks that this thread allocates. The
/// message of a failure has the peak, the excess and the lines that held the memory.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// let image = memtrace::assert_peak!("1 MiB", vec![0u8; 1000]);
/// assert_eq!(image.len(), 1000);
/// ```
/// ```should_panic
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// memtrace::assert_peak!("1 KiB", vec![0u8; 4096]);
/// ```
#[macro_export]
macro_rules! assert_peak {
    ($limit:expr, $value:expr $(,)?) => {{
        let limit = $crate::shell::limit($limit);
        let open = $crate::shell::begin();
        let value = $value;
        $crate::shell::end(open, limit, ::core::stringify!($limit, $value));
        value
    }};
}
