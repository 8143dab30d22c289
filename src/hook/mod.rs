//! Where memtrace stands between the program and its allocators.
//!
//! A hook turns a foreign call into the recorder's words and knows nothing of stacks, spans or files.

mod heap;

pub use heap::Alloc;
