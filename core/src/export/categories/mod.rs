//! Category timeline in the forms of torch.profiler's `export_memory_timeline`: two kinds of JSON. The picture is
//! [`TimelineSvg`](super::TimelineSvg).
//!
//! Readers of PyTorch's JSON expect its eight categories, so there KV_CACHE counts as ACTIVATION and WORKSPACE as TEMPORARY. The
//! picture shows all ten.

mod json;
#[cfg(test)]
mod tests;

pub use json::{CategoriesJson, CategoriesRaw};
