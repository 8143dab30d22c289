//! Absences: the parts of a log in which a block would no longer be live if the program were changed.

use std::num::NonZeroU64;

/// A change of the live bytes: the index of the record from which on it applies, and the bytes that are added.
pub(super) type LogChange = (usize, i64);

/// A block that is not live after the records `from..until`. Here [`usize::MAX`] stands for the end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Absence {
    pub(super) seq: NonZeroU64,
    pub(super) from: usize,
    pub(super) until: usize,
    pub(super) size: u64,
}

impl Absence {
    pub(super) fn changes(&self) -> [LogChange; 2] {
        let size = i64::try_from(self.size).unwrap_or(i64::MAX);
        [(self.from, -size), (self.until, size)]
    }

    pub(super) fn is_at(&self, at: usize) -> bool {
        (self.from..self.until).contains(&at)
    }
}

pub(super) fn changes_of(absences: &[Absence]) -> Vec<LogChange> {
    absences.iter().flat_map(Absence::changes).collect()
}
