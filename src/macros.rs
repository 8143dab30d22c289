//! Assertion macros for tests.

/// Evaluates an expression and panics if its memory peak exceeds a limit.
///
/// The limit is text like `"512 MiB"` or a number of bytes, and applies to each device by itself. The same memory
/// counts as for [`measure`](fn@crate::measure). `?` and `.await` work inside the expression. With `.await`, other work
/// that the thread does meanwhile counts as well; [`measure_async`](fn@crate::measure_async) measures a future alone. A
/// failure's message has the limit, the peak, the lines, operators and scopes that held this memory, and the path of a
/// snapshot.
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
/// Options of [`PeakLimit`](crate::PeakLimit) go before the expression: a baseline in addition to the limit or instead
/// of it, its tolerance, a device, a name for the list of all peaks:
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

/// Evaluates an expression and panics if more of a GPU's peak is wasted than the limit allows. A block is wasted if it
/// is past its last use by a kernel, copy or fill, or if nothing ever uses it. The message says what to change: lines,
/// kernels, and the peak without the waste.
///
/// The limit is text like `"1 MiB"` or a number of bytes. Options of [`NoWaste`](crate::NoWaste) go before the
/// expression: a baseline in addition to the limit or instead of it, its tolerance, a device. The assertion records the
/// whole process, with uses ([`Builder::uses`](crate::Builder::uses)). Assertions of several threads take turns.
///
/// ```no_run
/// # fn forward() {}
/// memtrace::assert_no_waste!("1 MiB", forward());
/// memtrace::assert_no_waste!(baseline = "forward", tolerance = "5%", forward());
/// ```
#[macro_export]
macro_rules! assert_no_waste {
    (@with [$($limit:tt)*] $option:ident = $value:expr, $($rest:tt)+) => {
        $crate::assert_no_waste!(@with [$($limit)* .$option($value)] $($rest)+)
    };
    (@with [$($limit:tt)*] $code:expr $(,)?) => {{
        let limit = $($limit)*;
        let open = $crate::shell::or_panic("assert_no_waste!", limit.begin());
        let value = $code;
        $crate::shell::or_panic("assert_no_waste!", limit.end(open));
        value
    }};
    ($option:ident = $value:expr, $($rest:tt)+) => {
        $crate::assert_no_waste!(@with [$crate::shell::NoWaste::new().$option($value)] $($rest)+)
    };
    ($limit:expr, $($rest:tt)+) => {
        $crate::assert_no_waste!(@with [$crate::shell::NoWaste::new().limit($limit)] $($rest)+)
    };
}

/// Evaluates an expression and panics if it does not fit on a GPU, or if memtrace cannot decide whether it fits.
///
/// The GPU is a name such as `"RTX 4090"`, or its memory as CUDA reports it, such as `"22.5 GiB"`. Options of
/// [`Fits`](crate::Fits) go before the expression: the memory of the GPU that others use, a device. The assertion
/// records the whole process. Assertions of several threads take turns. The message has what is needed, row by row, and
/// the lines, operators and scopes that hold it.
///
/// ```no_run
/// # fn forward() {}
/// memtrace::assert_fits!("RTX 4090", forward());
/// memtrace::assert_fits!("A10G", reserve = "500 MiB", forward());
/// ```
#[macro_export]
macro_rules! assert_fits {
    (@with [$($fits:tt)*] $option:ident = $value:expr, $($rest:tt)+) => {
        $crate::assert_fits!(@with [$($fits)* .$option($value)] $($rest)+)
    };
    (@with [$($fits:tt)*] $code:expr $(,)?) => {{
        let fits = $($fits)*;
        let open = $crate::shell::or_panic("assert_fits!", fits.begin());
        let value = $code;
        $crate::shell::or_panic("assert_fits!", fits.end(open));
        value
    }};
    ($card:expr, $($rest:tt)+) => {
        $crate::assert_fits!(@with [$crate::shell::Fits::on($card)] $($rest)+)
    };
}

/// Runs an expression repeatedly and panics if any allocation site leaks, that is, keeps more memory with more runs.
/// Options of [`NoLeak`](crate::NoLeak) go before the expression. Its value is dropped each time; `?` and `.await` work
/// inside it.
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
    ($($all:tt)+) => {
        $crate::__assert_runs!(
            ["assert_no_leak!", "write it like `assert_no_leak!(runs = 3, code)`"] [$crate::shell::NoLeak::new()] $($all)+
        )
    };
}

/// Turns each option into a method call on the assertion, and the code into the body of a loop.
#[doc(hidden)]
#[macro_export]
macro_rules! __assert_runs {
    ($texts:tt [$($assertion:tt)*] $option:ident = $value:expr, $($rest:tt)+) => {
        $crate::__assert_runs!($texts [$($assertion)* .$option($value)] $($rest)+)
    };
    ([$name:literal, $usage:literal] [$($assertion:tt)*] $code:expr $(,)?) => {{
        let mut watch = $crate::shell::or_panic($name, $($assertion)*.begin());
        while watch.again() {
            // The label makes `break` and `continue` in the code errors; otherwise they would end this loop.
            ::core::mem::drop('run: { $code });
        }
        $crate::shell::or_panic($name, watch.finish());
    }};
    ([$name:literal, $usage:literal] $($rest:tt)*) => {
        ::core::compile_error!($usage)
    };
}

/// Runs an expression repeatedly and panics if the memory that is live after each run keeps growing, in total or at one
/// allocation site. Options of [`NoGrowth`](crate::NoGrowth) go before the expression. Its value is dropped each time;
/// `?` and `.await` work inside it.
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
    ($($all:tt)+) => {
        $crate::__assert_runs!(
            ["assert_no_growth!", "write it like `assert_no_growth!(iterations = 20, code)`"]
            [$crate::shell::NoGrowth::new()] $($all)+
        )
    };
}

/// Runs an expression for several input sizes and panics if its peak, or the part of the peak that one allocation site
/// holds, grows faster with the size than stated. Options of [`Scales`](crate::Scales) go before the closure. The
/// closure's body is evaluated in place, so `?` and `.await` work inside it.
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
            // The label has the same purpose as in `__assert_runs!`.
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
