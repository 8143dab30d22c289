//! The category timeline, as torch.profiler's `export_memory_timeline` has it: two kinds of JSON, a picture, a page.

#[cfg(feature = "figures")]
mod columns;
#[cfg(feature = "figures")]
mod figure;
#[cfg(feature = "figures")]
mod html;
mod json;
#[cfg(feature = "figures")]
mod plot;
#[cfg(test)]
mod tests;

#[cfg(feature = "figures")]
pub use figure::CategoriesSvg;
#[cfg(feature = "figures")]
pub use html::CategoriesHtml;
pub use json::{CategoriesJson, CategoriesRaw};
