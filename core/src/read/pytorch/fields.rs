//! Fields of the dicts of a snapshot, checked.

use super::rows::SnapshotValues;
use crate::pytorch_words::WORDS;
use crate::read::pickle::{PickleValue, Refusal};

/// Addresses, sizes and their sums are below this.
pub(super) const LARGEST: u64 = 1 << 62;

/// The most keys of a dict that are searched, counted from the last. The limit is needed because a file may use one
/// dict many times. Dicts of a snapshot have about 20 keys.
const MOST_KEYS: usize = 1024;

/// Keys and values of a dict, alternately.
#[derive(Clone, Copy, Debug)]
pub(super) struct DictFields<'v>(pub(super) &'v [PickleValue]);

impl DictFields<'_> {
    /// The value of a key, given by its index among the known words. If the key occurs several times, the last value.
    #[inline]
    pub(super) fn find(&self, key: u32) -> Option<PickleValue> {
        let fits = |pair: &[PickleValue]| match pair {
            [PickleValue::Text(text), value] if *text == key => Some(*value),
            _ => None,
        };
        self.0.rchunks_exact(2).take(MOST_KEYS).find_map(fits)
    }

    /// The field's value, a number that is not negative; `None` if the field is missing.
    pub(super) fn number(&self, key: u32, values: &SnapshotValues<'_>) -> Result<Option<u64>, Refusal> {
        match self.find(key) {
            None | Some(PickleValue::None) => Ok(None),
            Some(value) => number(value, values).map(Some).ok_or_else(|| wrong(key, "is no number, or too large")),
        }
    }

    /// A number that must be present.
    pub(super) fn needed(&self, key: u32, values: &SnapshotValues<'_>) -> Result<u64, Refusal> {
        self.number(key, values)?.ok_or_else(|| wrong(key, "is missing"))
    }
}

/// A number that is not negative and small enough to be added to others.
pub(super) fn number(value: PickleValue, values: &SnapshotValues<'_>) -> Option<u64> {
    u64::try_from(values.integer(value)?).ok().filter(|number| *number < LARGEST)
}

fn wrong(key: u32, how: &str) -> Refusal {
    Refusal::new(format!("the field `{}` {how}", WORDS.get(key as usize).unwrap_or(&"?")))
}
