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
pub use figure::write as write_figure;
#[cfg(feature = "figures")]
pub use html::write as write_html;
pub use json::{write, write_raw};

use crate::snapshot::Device;

/// What to write.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which device; the main one if `None`.
    pub device: Option<Device>,
}
