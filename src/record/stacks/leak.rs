//! Memory that is never given back.

use crate::record::memory::{OwnVec, System, put};

/// So many values, for ever; `None` if there is no memory for them.
pub(super) fn leaked<T>(count: usize, value: impl FnMut(usize) -> T) -> Option<&'static [T]> {
    let mut values = with_room(count)?;
    (0..count).map(value).for_each(|value| put(&mut values, value));
    Some(values.leak())
}

/// Apart, because its frame is large where nothing is optimised.
#[inline(never)]
fn with_room<T>(count: usize) -> Option<OwnVec<T>> {
    let mut values = OwnVec::new_in(System);
    values.try_reserve_exact(count).ok()?;
    Some(values)
}
