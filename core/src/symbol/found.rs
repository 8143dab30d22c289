//! The names that an earlier reading of a recording found. If the recording has grown since, debug information is
//! searched only for the new addresses.

use super::Resolved;
use crate::snapshot::LoadedObject;

/// The addresses that are resolved so far, in the order of the recording's addresses.
#[derive(Clone, Debug, Default)]
pub struct FoundNames {
    objects: Vec<LoadedObject>,
    names: Vec<(u64, Resolved)>,
}

impl FoundNames {
    /// Keeps the names if `objects` begins with the objects of the earlier reading. Otherwise it forgets all names,
    /// because an address may now belong to another object.
    pub(super) fn begin(&mut self, objects: &[LoadedObject]) {
        if !objects.starts_with(&self.objects) {
            self.names.clear();
        }
        self.objects = objects.to_vec();
    }

    /// The name of `address`, which has the index `place` among the recording's addresses. If the name is not known
    /// yet, `resolve` finds it.
    pub(super) fn at(&mut self, place: usize, address: u64, resolve: impl FnOnce() -> Resolved) -> &Resolved {
        if self.names.get(place).is_none_or(|(known, _)| *known != address) {
            self.names.truncate(place);
            self.names.push((address, resolve()));
        }
        let place = place.min(self.names.len() - 1);
        &self.names[place].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(base: u64) -> LoadedObject {
        LoadedObject { path: Some("/a".into()), build_id: vec![1], base, range: base..base + 100 }
    }

    #[test]
    fn a_name_is_searched_for_once_as_long_as_its_object_is_the_same() {
        let mut searched = Vec::new();
        let mut found = FoundNames::default();
        let mut read = |objects: &[LoadedObject], addresses: &[u64]| {
            found.begin(objects);
            for (place, address) in addresses.iter().enumerate() {
                found.at(place, *address, || {
                    searched.push(*address);
                    Resolved::default()
                });
            }
            std::mem::take(&mut searched)
        };
        assert_eq!(read(&[object(0)], &[5, 6]), [5, 6]);
        assert_eq!(read(&[object(0), object(200)], &[5, 6, 207]), [207]);
        assert_eq!(read(&[object(0), object(200)], &[5, 8, 207]), [8, 207], "another file's order");
        assert_eq!(read(&[object(0)], &[5, 8]), [5, 8], "an object is gone");
    }
}
