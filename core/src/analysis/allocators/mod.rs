//! What-if replay: replays the log's requests with models of allocators, and searches for the tightest packing.
//!
//! A model decides where a block lies and what is reserved for it. No model has been compared with a GPU. The driver's
//! pool has the rules of the simulated driver. PyTorch's caching allocator has the rules that its documentation and
//! source notes state.

mod allocator;
mod compared;
mod driver_pool;
mod expandable;
mod gaps;
mod lives;
mod model;
#[cfg(test)]
mod naive;
mod packing;
mod pytorch;
#[cfg(test)]
mod random_tests;
mod requests;
mod settings;
mod what_if;

pub use allocator::Allocator;
pub use compared::ComparedWithFile;
pub use model::AllocatorModel;
pub use packing::Packing;
pub use settings::PyTorchSettings;
pub use what_if::{RunsOut, WhatIf};
