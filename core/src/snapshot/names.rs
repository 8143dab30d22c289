//! What the program called its blocks.

use std::collections::HashMap;
use std::num::NonZeroU64;

use foldhash::fast::RandomState;

use super::{Category, DeviceSnapshot};

/// Bytes of a name; what is longer is cut.
pub const LONGEST_NAME: usize = 256;

/// The name that the program gave a block, with `name` and its relatives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockName {
    /// The block's [`seq`](super::Block::seq); also the [`alloc_seq`](super::Record::alloc_seq) of its
    /// alloc and of its free.
    pub seq: NonZeroU64,
    /// At most 256 bytes.
    pub name: String,
    /// What the program said that it is for.
    pub category: Category,
}

/// The names of a device's blocks, to be asked for those of a whole log.
pub(crate) struct NamesBySeq<'a>(HashMap<NonZeroU64, &'a str, RandomState>);

impl<'a> NamesBySeq<'a> {
    /// See [`DeviceSnapshot::name`].
    pub(crate) fn get(&self, seq: Option<NonZeroU64>) -> Option<&'a str> {
        self.0.get(&seq?).copied()
    }
}

impl DeviceSnapshot {
    /// The name of the block whose alloc has this position in the log.
    pub fn name(&self, seq: Option<NonZeroU64>) -> Option<&str> {
        self.named(seq).map(|name| name.name.as_str())
    }

    /// All names, for many look-ups.
    pub(crate) fn names_by_seq(&self) -> NamesBySeq<'_> {
        NamesBySeq(self.names.iter().map(|name| (name.seq, name.name.as_str())).collect())
    }

    /// What the program said of the block whose alloc has this position in the log.
    pub fn named(&self, seq: Option<NonZeroU64>) -> Option<&BlockName> {
        let at = self.names.binary_search_by_key(&seq?, |name| name.seq).ok()?;
        self.names.get(at)
    }
}
