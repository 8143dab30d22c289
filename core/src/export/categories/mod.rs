//! Category timeline in the forms of torch.profiler's `export_memory_timeline`: two kinds of JSON, and a figure.
//!
//! Readers of PyTorch's JSON expect its eight categories, so there KV_CACHE counts as ACTIVATION and WORKSPACE as TEMPORARY. The
//! figure shows all ten.

#[cfg(feature = "figures")]
mod columns;
#[cfg(feature = "figures")]
mod figure;
mod json;
#[cfg(feature = "figures")]
mod keys;
#[cfg(feature = "figures")]
mod plot;
#[cfg(test)]
mod tests;

#[cfg(feature = "figures")]
pub use figure::CategoriesSvg;
pub use json::{CategoriesJson, CategoriesRaw};
#[cfg(feature = "figures")]
pub use keys::TimelineSvg;
