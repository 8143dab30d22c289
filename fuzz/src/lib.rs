//! Code that the fuzz targets share with `tests/hostile.rs`.

#[path = "../../tests/support/hostile.rs"]
mod hostile;
mod pickles;
#[path = "../../tests/support/seeds.rs"]
pub mod seeds;

pub use hostile::*;
pub use pickles::pickle_of;
