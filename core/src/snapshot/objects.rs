//! Loaded programs and libraries, and which of them an address lies in, found by halving.

use std::collections::BTreeSet;
use std::ops::Range;

/// A loaded program or library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedObject {
    /// Its file, if the system names one.
    pub path: Option<String>,
    /// GNU build-id, or empty.
    pub build_id: Vec<u8>,
    /// What to add to an address in the file to get the address in memory.
    pub base: u64,
    /// The addresses that it occupies.
    pub range: Range<u64>,
}

/// The addresses of modules, for many questions. Where modules overlap, the first of them has it.
#[derive(Debug, Default)]
pub struct ObjectSpans {
    /// From each address on up to the next one: which module, if any. Sorted.
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

    /// The index of the module that holds an address.
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
