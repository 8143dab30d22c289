//! Fields of the dicts of a snapshot, checked.

use super::rows::SnapshotValues;
use crate::pytorch_words::WORDS;
use crate::read::pickle::{PickleValue, Refusal};

/// Addresses, sizes and their sums are below it.
pub(super) const LARGEST: u64 = 1 << 62;

/// Keys of a dict that are looked at, the last ones: a file may show one dict many times. Those of a snapshot have about 20.
const MOST_KEYS: usize = 1024;

/// Keys and values of a dict in turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct DictFields<'v>(pub(super) &'v [PickleValue]);

impl DictFields<'_> {
    /// The value of a key, by the key's index among the known words; the last if there are several.
    #[inline]
    pub(super) fn find(&self, key: u32) -> Option<PickleValue> {
        let fits = |pair: &[PickleValue]| match pair {
            [PickleValue::Text(text), value] if *text == key => Some(*value),
            _ => None,
        };
        self.0.rchunks_exact(2).take(MOST_KEYS).find_map(fits)
    }

    /// A number that is not negative, if there is one.
    pub(super) fn number(&self, key: u32, values: &SnapshotValues<'_>) -> Result<Option<u64>, Refusal> {
        match self.find(key) {
            None | Some(PickleValue::None) => Ok(None),
            Some(value) => number(value, values).map(Some).ok_or_else(|| wrong(key, "is no number, or too large")),
        }
    }

    /// A number that must be there.
    pub(super) fn needed(&self, key: u32, values: &SnapshotValues<'_>) -> Result<u64, Refusal> {
        self.number(key, values)?.ok_or_else(|| wrong(key, "is missing"))
    }
}

/// A number that is not negative and can be added to others.
pub(super) fn number(value: PickleValue, values: &SnapshotValues<'_>) -> Option<u64> {
    u64::try_from(values.integer(value)?).ok().filter(|number| *number < LARGEST)
}

fn wrong(key: u32, how: &str) -> Refusal {
    Refusal::new(format!("the field `{}` {how}", WORDS.get(key as usize).unwrap_or(&"?")))
}
