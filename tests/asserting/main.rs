//! Measurements and assertions, side by side as tests run: each sees what its own code allocates.

mod assertions;
mod measure;
mod planted;
#[path = "../support/mod.rs"]
mod support;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
