//! Looks at a recording that grows: the live memory at its end each time, and the growth of every row from look to
//! look.
//!
//! A recording is reduced when it is read ([`Look`]), like the recording of a rank. [`Looks`] keeps the last look, the
//! look before it, and for each key the first look that has tables by this key.

mod look;
mod row;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use self::look::{DeviceLook, Look};
pub use self::row::{LookOrder, LookRow};
use super::{Breakdown, Diff, Key};
use crate::snapshot::Device;

/// The looks at one recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    last: Look,
    before: Option<Look>,
    first: BTreeMap<Key, Look>,
}

impl Looks {
    /// Starts with the first look.
    pub fn begin(look: Look) -> Self {
        let mut looks = Self::default();
        looks.add(look);
        looks
    }

    /// Adds a look. If the file now belongs to another process, this is a first look.
    pub fn add(&mut self, look: Look) {
        let last = std::mem::replace(&mut self.last, look);
        self.before = Some(last).filter(|last| last.rank.is_same_process(&self.last.rank));
        if self.before.is_none() {
            self.first.clear();
        }
        for key in &self.last.keys {
            self.first.entry(*key).or_insert_with(|| self.last.by_one(*key));
        }
    }

    /// The last look.
    pub fn last(&self) -> &Look {
        &self.last
    }

    /// Adds a look at a file that has not grown.
    pub fn add_unchanged(&mut self) {
        self.add(self.last.clone());
    }

    /// When the first look by this key was, in nanoseconds since the recording began; `None` if it is the last look.
    pub fn since_ns(&self, key: Key) -> Option<u64> {
        self.first(key).map(Look::time_ns)
    }

    fn first(&self, key: Key) -> Option<&Look> {
        let is_older = self.before.as_ref().is_some_and(|before| before.keys.contains(&key));
        self.first.get(&key).filter(|_| is_older)
    }

    /// The rows of a device by a key, in this order; empty if the last look was not by this key. A row that is gone
    /// stays with 0 bytes, so that the rows' growth adds up to the device's.
    pub fn rows(&self, device: Device, key: Key, order: LookOrder) -> Vec<LookRow> {
        let now = self.last.table(device, key);
        let before = self.before.as_ref().and_then(|before| before.table(device, key));
        let first = self.first(key).and_then(|first| first.table(device, key));
        let mut rows = now.map_or_else(Vec::new, |now| rows(now, before, first));
        order.sort(&mut rows);
        rows
    }
}

fn rows(now: &Breakdown, before: Option<&Breakdown>, first: Option<&Breakdown>) -> Vec<LookRow> {
    let [since_last, since_first] = [before, first].map(|earlier| earlier.map(|it| Diff::of_breakdowns(it, now)));
    // A label that is gone now, and that only one of the earlier looks had, did not change since the other look.
    let [last, first] = [&since_last, &since_first].map(|diff| diff.as_ref().map(|_| 0));
    let gone = LookRow { count: Some(0), since_last: last, since_first: first, ..LookRow::default() };
    let mut all: BTreeMap<&str, LookRow> = BTreeMap::new();
    for row in &now.rows {
        all.insert(&row.label, LookRow { bytes: row.bytes, count: row.count, ..gone.clone() });
    }
    for row in since_last.iter().flat_map(|diff| &diff.rows) {
        all.entry(&row.label).or_insert_with(|| gone.clone()).since_last = Some(row.change());
    }
    for row in since_first.iter().flat_map(|diff| &diff.rows) {
        all.entry(&row.label).or_insert_with(|| gone.clone()).since_first = Some(row.change());
    }
    all.into_iter().map(|(label, row)| LookRow { label: label.to_owned(), ..row }).collect()
}
