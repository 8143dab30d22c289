//! A stack whose entries can leave from any position: scopes that are entered and left in any order. Each operation
//! takes constant time on average.

use std::hash::Hash;

use crate::hashed::HashMap;

/// The entries that have not left yet, in order.
#[derive(Clone, Debug)]
pub(crate) struct OpenStack<K, V> {
    /// `None` for an entry that left while others were above it.
    entries: Vec<Option<(K, V)>>,
    /// The places of each key's entries, the innermost last.
    places: HashMap<K, Vec<usize>>,
    open: usize,
}

impl<K, V> Default for OpenStack<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new(), places: HashMap::default(), open: 0 }
    }
}

impl<K: Copy + Eq + Hash, V> OpenStack<K, V> {
    pub(crate) fn enter(&mut self, key: K, value: V) {
        if self.entries.len() > 2 * self.open + 16 {
            self.close_up();
        }
        self.places.entry(key).or_default().push(self.entries.len());
        self.entries.push(Some((key, value)));
        self.open += 1;
    }

    /// Takes out the innermost entry of a key.
    pub(crate) fn leave(&mut self, key: K) -> Option<(OpenPlace, V)> {
        let places = self.places.get_mut(&key)?;
        let place = places.pop()?;
        if places.is_empty() {
            self.places.remove(&key);
        }
        let (_, value) = self.entries.get_mut(place)?.take()?;
        self.open -= 1;
        while self.entries.pop_if(|entry| entry.is_none()).is_some() {}
        Some((OpenPlace(place), value))
    }

    /// The distance from the top to the innermost entry of a key. Entries that have left may still count, so the
    /// distance is at least the number of open entries inside of that entry.
    pub(crate) fn distance(&self, key: K) -> usize {
        let place = self.places.get(&key).and_then(|places| places.last());
        place.map_or(0, |place| self.entries.len() - place - 1)
    }

    /// The entries, from the outermost to the innermost.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &V)> {
        self.inside(OpenPlace(0))
    }

    /// The entries inside of the one that [`leave`](Self::leave) just removed.
    pub(crate) fn inside(&self, place: OpenPlace) -> impl DoubleEndedIterator<Item = (K, &V)> {
        self.entries.get(place.0..).unwrap_or_default().iter().flatten().map(|(key, value)| (*key, value))
    }

    pub(crate) fn innermost(&self) -> Option<(K, &V)> {
        self.iter().next_back()
    }

    pub(crate) fn into_values(self) -> impl DoubleEndedIterator<Item = V> {
        self.entries.into_iter().flatten().map(|(_, value)| value)
    }

    fn close_up(&mut self) {
        self.entries.retain(Option::is_some);
        self.places.clear();
        for (place, (key, _)) in self.entries.iter().flatten().enumerate() {
            self.places.entry(*key).or_default().push(place);
        }
    }
}

/// The place of an entry that left. It is valid until the next entry is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenPlace(usize);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_list_from_which_the_last_entry_of_a_key_is_removed(
            steps in prop::collection::vec((any::<bool>(), 0..6u8), 0..300),
        ) {
            let (mut found, mut list): (OpenStack<u8, usize>, Vec<(u8, usize)>) = Default::default();
            for (at, (enter, key)) in steps.into_iter().enumerate() {
                if enter {
                    found.enter(key, at);
                    list.push((key, at));
                } else {
                    let place = list.iter().rposition(|(known, _)| *known == key);
                    let left = found.leave(key);
                    prop_assert_eq!(left.map(|(_, value)| value), place.map(|place| list.remove(place).1));
                    if let (Some((place, _)), Some(at)) = (left, place) {
                        let inside: Vec<usize> = found.inside(place).map(|(_, value)| *value).collect();
                        prop_assert_eq!(inside, list[at..].iter().map(|(_, value)| *value).collect::<Vec<_>>());
                    }
                }
                prop_assert_eq!(found.iter().map(|(key, value)| (key, *value)).collect::<Vec<_>>(), list.clone());
            }
        }
    }

    /// With a search from the end for each entry that leaves, this would take a minute.
    #[test]
    fn three_hundred_thousand_that_leave_in_the_order_of_entering_are_no_trouble() {
        let mut open = OpenStack::default();
        (0..300_000u32).for_each(|key| open.enter(key, ()));
        assert!((0..300_000).all(|key| open.leave(key).is_some()));
        assert_eq!(open.innermost(), None);
    }
}
