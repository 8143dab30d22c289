//! What the fuzz targets share with a test of the package, `tests/hostile.rs`.

#[path = "../../tests/support/hostile.rs"]
mod hostile;
#[path = "../../tests/support/seeds.rs"]
pub mod seeds;

pub use hostile::*;
