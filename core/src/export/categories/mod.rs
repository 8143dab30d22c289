//! Category timeline in the two JSON forms of torch.profiler's `export_memory_timeline`. The picture is
//! [`TimelineSvg`](super::TimelineSvg).
//!
//! Readers of PyTorch's JSON expect its eight categories, so KV_CACHE counts there as ACTIVATION and WORKSPACE as
//! TEMPORARY. The picture shows all ten.

mod json;
#[cfg(test)]
mod tests;

pub use json::{CategoriesJson, CategoriesRaw};
