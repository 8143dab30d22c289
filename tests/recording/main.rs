//! Recordings of the heap, one at a time: tests that record, or that allocate blocks which a recording would see, hold
//! [`support::alone`].

mod backward;
mod captures;
mod categories;
mod category_timeline;
#[path = "../support/child.rs"]
mod child;
mod chrome;
mod disk;
#[path = "../support/full_disk.rs"]
mod full_disk;
mod full_disk_formats;
mod heap;
mod heap_property;
mod heap_signals;
mod heap_threads;
#[path = "../support/known.rs"]
mod known;
mod leaks;
mod lifecycle;
mod metrics;
mod names;
mod operator_series;
mod operators;
mod parts;
#[path = "../support/random.rs"]
mod random;
mod recordings;
mod sampling;
mod schedule;
#[path = "../support/schema.rs"]
mod schema;
mod served;
mod shadowed;
mod span_peaks;
mod spans;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/ticks.rs"]
mod ticks;
mod workspace;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
