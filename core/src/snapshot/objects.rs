//! Loaded objects (ELF files mapped into the process), and a sorted interval index from addresses to them.

use std::collections::BTreeSet;
use std::ops::Range;

/// A loaded object: a program or shared library in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedObject {
    /// Its file, if the system reports one.
    pub path: Option<String>,
    /// GNU build-id; empty if it has none.
    pub build_id: Vec<u8>,
    /// Load bias: the address in memory minus the address in the file.
    pub base: u64,
    /// The address range that it occupies.
    pub range: Range<u64>,
}

/// Interval index of loaded objects, searched by bisection. Where objects overlap, the first one wins.
#[derive(Debug, Default)]
pub struct ObjectSpans {
    /// Sorted. Each entry has an address and the index of the object there; the index is valid up to the next entry's
    /// address.
    starts: Vec<(u64, Option<usize>)>,
}

impl ObjectSpans {
    pub(crate) fn of(objects: &[LoadedObject]) -> Self {
        let ranges = || objects.iter().map(|object| &object.range).enumerate().filter(|(_, range)| !range.is_empty());
        let begins = ranges().map(|(index, range)| (range.start, true, index));
        let ends = ranges().map(|(index, range)| (range.end, false, index));
        let mut edges: Vec<(u64, bool, usize)> = begins.chain(ends).collect();
        edges.sort_unstable();
        let (mut open, mut starts) = (BTreeSet::new(), Vec::new());
        for (address, begins, index) in edges {
            if begins {
                open.insert(index)
            } else {
                open.remove(&index)
            };
            starts.push((address, open.first().copied()));
        }
        Self { starts }
    }

    /// The index of the object that contains an address.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let after = self.starts.partition_point(|(start, _)| *start <= address);
        self.starts.get(after.checked_sub(1)?)?.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_first_object_that_holds_it() {
        let object = |range| LoadedObject { path: None, build_id: Vec::new(), base: 0, range };
        #[expect(clippy::reversed_empty_ranges, reason = "a damaged file may hold one")]
        let ranges = [10..20, 15..30, 5..5, 9..3, 0..40, 20..25, 50..60, 60..u64::MAX];
        let objects: Vec<LoadedObject> = ranges.into_iter().map(object).collect();
        let spans = ObjectSpans::of(&objects);
        for address in (0..70).chain([u64::MAX - 1, u64::MAX]) {
            let first = objects.iter().position(|object| object.range.contains(&address));
            assert_eq!(spans.find(address), first, "{address}");
        }
    }
}
