//! Allocations that are leaked on purpose.

use crate::record::memory::{OwnVec, System, put};

/// A leaked slice; `None` if there is no memory.
pub(super) fn leaked<T>(count: usize, value: impl FnMut(usize) -> T) -> Option<&'static [T]> {
    let mut values = with_room(count)?;
    (0..count).map(value).for_each(|value| put(&mut values, value));
    Some(values.leak())
}

/// Out of line, because its stack frame is large in unoptimised builds.
#[inline(never)]
fn with_room<T>(count: usize) -> Option<OwnVec<T>> {
    let mut values = OwnVec::new_in(System);
    values.try_reserve_exact(count).ok()?;
    Some(values)
}
