//! Parallel measurements and assertions: each sees only its own code's allocations.

mod assertions;
mod measure;
mod planted;
#[path = "../support/mod.rs"]
mod support;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
