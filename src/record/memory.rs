//! Where the recorder's own tables live: the system allocator, past the one that is watched.

use allocator_api2::alloc::Allocator;
pub(crate) use allocator_api2::alloc::System;
use allocator_api2::vec::Vec;
use foldhash::fast::FixedState;

pub(crate) type OwnVec<T> = Vec<T, System>;
pub(crate) type OwnMap<K, V> = hashbrown::HashMap<K, V, FixedState, System>;
pub(crate) type OwnTable<T> = hashbrown::HashTable<T, System>;

pub(crate) const fn own_map<K, V>() -> OwnMap<K, V> {
    OwnMap::with_hasher_in(HASHER, System)
}

/// Fixed, so that tables can be made in statics; addresses and names are not hostile input.
pub(crate) const HASHER: FixedState = FixedState::with_seed(0x6d65_6d74_7261_6365);

/// Pushes if memory can be had; says whether it was.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn try_push<T>(list: &mut OwnVec<T>, value: T) -> bool {
    let room = list.len() < list.capacity() || make_room(list);
    if room {
        put(list, value);
    }
    room
}

/// For one more. Apart, so that its frame is not that of every push.
#[cold]
#[inline(never)]
pub(crate) fn make_room<T>(list: &mut OwnVec<T>) -> bool {
    list.try_reserve(1).is_ok()
}

/// Pushes where there is room already. The list's own way to push has a part that makes room, and its frame is large.
#[cfg_attr(not(debug_assertions), inline(always))]
#[expect(unsafe_code, reason = "writes behind what is there")]
pub(crate) fn put<T, A: Allocator>(list: &mut Vec<T, A>, value: T) {
    let length = list.len();
    if length < list.capacity() {
        let place = list.as_mut_ptr().wrapping_add(length);
        // SAFETY: it is the list's, and nothing is there yet.
        unsafe { place.write(value) };
        // SAFETY: so many were there, and one more was written behind them.
        unsafe { list.set_len(length + 1) };
    }
}
