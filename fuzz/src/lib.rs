//! Code that the fuzz targets share with `tests/hostile.rs`.

#[path = "../../tests/support/hostile.rs"]
mod hostile;
#[path = "../../tests/support/seeds.rs"]
pub mod seeds;

pub use hostile::*;
