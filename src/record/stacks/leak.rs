//! Allocations that are leaked on purpose.

use crate::record::memory::{put, with_room};

/// A leaked slice; `None` if there is no memory.
pub(super) fn leaked<T>(count: usize, value: impl FnMut(usize) -> T) -> Option<&'static [T]> {
    let mut values = with_room(count)?;
    (0..count).map(value).for_each(|value| put(&mut values, value));
    Some(values.leak())
}
