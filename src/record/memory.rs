//! Collections on the system allocator. The recorder's tables must not use the watched allocator.

use allocator_api2::alloc::Allocator;
#[cfg(not(any(test, all(feature = "preload", target_os = "linux", target_env = "gnu"))))]
pub(crate) use allocator_api2::alloc::System;
use allocator_api2::vec::Vec;
use foldhash::fast::FixedState;

#[cfg(all(not(test), feature = "preload", target_os = "linux", target_env = "gnu"))]
pub(crate) use super::own_heap::System;
#[cfg(test)]
pub(crate) use super::scarce::System;

pub(crate) type OwnVec<T> = Vec<T, System>;
pub(crate) type OwnMap<K, V> = hashbrown::HashMap<K, V, FixedState, System>;
pub(crate) type OwnTable<T> = hashbrown::HashTable<T, System>;

pub(crate) const fn own_map<K, V>() -> OwnMap<K, V> {
    OwnMap::with_hasher_in(HASHER, System)
}

/// The seed is fixed, so that tables can be built in statics. Addresses and names are not hostile input.
pub(crate) const HASHER: FixedState = FixedState::with_seed(0x6d65_6d74_7261_6365);

/// Pushes unless there is no memory. Returns whether it did.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn try_push<T>(list: &mut OwnVec<T>, value: T) -> bool {
    let room = list.len() < list.capacity() || make_room(list);
    if room {
        put(list, value);
    }
    room
}

/// Out of line, so that its stack frame is not part of every push.
#[cold]
#[inline(never)]
pub(crate) fn make_room<T>(list: &mut OwnVec<T>) -> bool {
    list.try_reserve(1).is_ok()
}

/// An empty list with room for `count` elements; `None` if there is no memory. Out of line, because its stack frame is
/// large in unoptimised builds.
#[inline(never)]
pub(crate) fn with_room<T>(count: usize) -> Option<OwnVec<T>> {
    let mut list = OwnVec::new_in(System);
    list.try_reserve_exact(count).ok()?;
    Some(list)
}

/// A copy of the list; `None` if there is no memory.
pub(crate) fn try_copy<T: Copy>(list: &[T]) -> Option<OwnVec<T>> {
    let mut copy = with_room(list.len())?;
    copy.extend_from_slice(list);
    Some(copy)
}

/// Collects items; drops those for which there is no memory.
pub(crate) fn own_vec<T>(items: impl IntoIterator<Item = T>) -> OwnVec<T> {
    let mut list = OwnVec::new_in(System);
    for item in items {
        let _ = try_push(&mut list, item);
    }
    list
}

/// Pushes without growing. `Vec::push` contains the growth path, whose stack frame is large.
#[cfg_attr(not(debug_assertions), inline(always))]
#[expect(unsafe_code, reason = "writes into spare capacity")]
pub(crate) fn put<T, A: Allocator>(list: &mut Vec<T, A>, value: T) {
    let length = list.len();
    if length < list.capacity() {
        let place = list.as_mut_ptr().wrapping_add(length);
        // SAFETY: the place is within the capacity, just past the last element.
        unsafe { place.write(value) };
        // SAFETY: the element is initialised now, and within the capacity.
        unsafe { list.set_len(length + 1) };
    }
}
