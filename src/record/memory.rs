//! Where the recorder's own tables live: the system allocator, past the one that is watched.

pub(crate) use allocator_api2::alloc::System;
use foldhash::fast::FixedState;

pub(crate) type OwnVec<T> = allocator_api2::vec::Vec<T, System>;
pub(crate) type OwnMap<K, V> = hashbrown::HashMap<K, V, FixedState, System>;
pub(crate) type OwnTable<T> = hashbrown::HashTable<T, System>;

pub(crate) const fn own_map<K, V>() -> OwnMap<K, V> {
    OwnMap::with_hasher_in(HASHER, System)
}

/// Fixed, so that tables can be made in statics; addresses and names are not hostile input.
pub(crate) const HASHER: FixedState = FixedState::with_seed(0x6d65_6d74_7261_6365);

/// Pushes if memory can be had; says whether it was.
#[inline]
pub(crate) fn try_push<T>(list: &mut OwnVec<T>, value: T) -> bool {
    let room = list.len() < list.capacity() || list.try_reserve(1).is_ok();
    if room {
        list.push(value);
    }
    room
}
