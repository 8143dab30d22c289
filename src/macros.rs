//! Assertions for tests.

/// Yields the value of an expression, and panics if it held more than a limit at once while it was evaluated.
///
/// The limit is text like `"512 MiB"` or a number of bytes; each device is held against it by itself. What is
/// counted is what [`measure`](fn@crate::measure) counts. `?` inside the expression works, and so does `.await`, though what
/// else the thread does meanwhile counts, too: [`measure_async`](fn@crate::measure_async) measures a future alone. The message
/// of a failure has the limit, the peak, the lines, operators and scopes that held it, and the snapshot's file.
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
///
/// What [`PeakLimit`](crate::PeakLimit) can be told stands before the expression: a baseline beside the test
/// instead of the limit, or besides, its tolerance, a device, a name for the list of all peaks:
/// ```no_run
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// # fn forward() {}
/// memtrace::assert_peak!(baseline = "forward", tolerance = "5%", forward());
/// memtrace::assert_peak!("24 GB", device = memtrace::Device::Cuda(0), name = "fits", forward());
/// ```
#[macro_export]
macro_rules! assert_peak {
    (@with [$($limit:tt)*] $option:ident = $value:expr, $($rest:tt)+) => {
        $crate::assert_peak!(@with [$($limit)* .$option($value)] $($rest)+)
    };
    (@with [$($limit:tt)*] $code:expr $(,)?) => {{
        let limit = $($limit)* .code(::core::stringify!($code));
        let open = $crate::shell::or_panic("assert_peak!", limit.begin());
        let value = $code;
        $crate::shell::or_panic("assert_peak!", limit.check(&open.end()));
        value
    }};
    ($option:ident = $value:expr, $($rest:tt)+) => {
        $crate::assert_peak!(@with [$crate::shell::PeakLimit::new().$option($value)] $($rest)+)
    };
    ($limit:expr, $($rest:tt)+) => {
        $crate::assert_peak!(@with [$crate::shell::PeakLimit::new().limit($limit)] $($rest)+)
    };
}

/// Runs an expression again and again, and panics if more stays behind the more often it runs: by stack, after some
/// runs to warm up. What [`NoLeak`](crate::NoLeak) can be told stands before the expression. Its value is dropped
/// each time; `?` and `.await` inside work.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// memtrace::assert_no_leak!(vec![0u8; 1000].len());
/// memtrace::assert_no_leak!(warmup = 1, runs = 5, vec![0u8; 1000].len());
/// ```
/// ```should_panic
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// memtrace::assert_no_leak!(std::mem::forget(vec![0u8; 1000]));
/// ```
#[macro_export]
macro_rules! assert_no_leak {
    (@with [$($plan:tt)*] $option:ident = $value:expr, $($rest:tt)+) => {
        $crate::assert_no_leak!(@with [$($plan)* .$option($value)] $($rest)+)
    };
    (@with [$($plan:tt)*] $code:expr $(,)?) => {{
        let mut watch = $crate::shell::or_panic("assert_no_leak!", $($plan)*.begin());
        while watch.again() {
            // A block with a name: `break` and `continue` in the code are errors instead of ending this loop.
            ::core::mem::drop('run: { $code });
        }
        $crate::shell::or_panic("assert_no_leak!", watch.finish());
    }};
    (@with $($rest:tt)*) => {
        ::core::compile_error!("write it like `assert_no_leak!(runs = 3, code)`")
    };
    ($($all:tt)+) => {
        $crate::assert_no_leak!(@with [$crate::shell::NoLeak::new()] $($all)+)
    };
}

/// Runs an expression again and again, and panics if what is live after each run grows on and on: by stack, and in
/// all. What [`NoGrowth`](crate::NoGrowth) can be told stands before the expression. Its value is dropped each time;
/// `?` and `.await` inside work.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// let mut cache = std::collections::HashMap::new();
/// let mut n = 0;
/// memtrace::assert_no_growth!(iterations = 20, {
///     n += 1;
///     cache.insert(n % 4, vec![0u8; 1000]);
/// });
/// ```
/// ```should_panic
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// let mut requests = Vec::new();
/// memtrace::assert_no_growth!(iterations = 20, requests.push(vec![0u8; 1000]));
/// ```
#[macro_export]
macro_rules! assert_no_growth {
    (@with [$($plan:tt)*] $option:ident = $value:expr, $($rest:tt)+) => {
        $crate::assert_no_growth!(@with [$($plan)* .$option($value)] $($rest)+)
    };
    (@with [$($plan:tt)*] $code:expr $(,)?) => {{
        let mut watch = $crate::shell::or_panic("assert_no_growth!", $($plan)*.begin());
        while watch.again() {
            // As in `assert_no_leak!`.
            ::core::mem::drop('run: { $code });
        }
        $crate::shell::or_panic("assert_no_growth!", watch.finish());
    }};
    (@with $($rest:tt)*) => {
        ::core::compile_error!("write it like `assert_no_growth!(iterations = 20, code)`")
    };
    ($($all:tt)+) => {
        $crate::assert_no_growth!(@with [$crate::shell::NoGrowth::new()] $($all)+)
    };
}

/// Runs an expression for several sizes of its input, and panics if its peak, or the part of a stack in it, grows
/// faster with the size than stated. What [`Scales`](crate::Scales) can be told stands before the closure, whose
/// body is evaluated in place: `?` and `.await` inside work.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// use memtrace::Scaling;
/// memtrace::assert_scaling!(Scaling::Linear, sizes = [1000, 2000, 4000, 8000], |n| vec![0f32; n]);
/// ```
/// ```should_panic
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// use memtrace::Scaling;
/// memtrace::assert_scaling!(Scaling::Linear, sizes = [100, 200, 400, 800], |n| vec![0f32; n * n]);
/// ```
#[macro_export]
macro_rules! assert_scaling {
    (@with [$($plan:tt)*] $option:ident = $value:expr, $($rest:tt)+) => {
        $crate::assert_scaling!(@with [$($plan)* .$option($value)] $($rest)+)
    };
    (@with [$($plan:tt)*] |$size:pat_param| $code:expr $(,)?) => {{
        let plan = $($plan)*;
        let mut watch = $crate::shell::or_panic("assert_scaling!", plan.begin());
        while let ::core::option::Option::Some($size) = $crate::shell::or_panic("assert_scaling!", watch.next_size()) {
            // As in `assert_no_leak!`.
            ::core::mem::drop('run: { $code });
        }
        $crate::shell::or_panic("assert_scaling!", watch.finish());
    }};
    (@with [$($plan:tt)*] |$size:ident: $type:ty| $code:expr $(,)?) => {
        $crate::assert_scaling!(@with [$($plan)*] |$size| { let $size: $type = $size; $code })
    };
    (@with $($rest:tt)*) => {
        ::core::compile_error!("write it like `assert_scaling!(Scaling::Linear, sizes = [100, 200, 400], |n| code)`")
    };
    ($scaling:expr, $($rest:tt)+) => {
        $crate::assert_scaling!(@with [$crate::shell::Scales::new($scaling)] $($rest)+)
    };
}
