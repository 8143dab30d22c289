//! Memory that is never given back.

use crate::record::memory::{OwnVec, System};

/// So many values, for ever; `None` if there is no memory for them.
pub(super) fn leaked<T>(count: usize, value: impl FnMut(usize) -> T) -> Option<&'static [T]> {
    let mut values = OwnVec::new_in(System);
    values.try_reserve_exact(count).ok()?;
    values.extend((0..count).map(value));
    Some(values.leak())
}
