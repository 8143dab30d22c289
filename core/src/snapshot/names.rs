//! Block names given by the program.

use std::num::NonZeroU64;

use super::{Category, DeviceSnapshot};

/// Maximum length of a name in bytes; longer names are cut.
pub const LONGEST_NAME: usize = 256;

/// The name and category that the program gave a block (`memtrace::name` and related functions).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockName {
    /// The block's number: its [`seq`](super::Block::seq), and the [`alloc_seq`](super::Record::alloc_seq) of its records.
    pub seq: NonZeroU64,
    /// At most 256 bytes.
    pub name: String,
    /// The category, [`Category::Unknown`] if the program gave none.
    pub category: Category,
}

impl DeviceSnapshot {
    /// The name of the block with this number ([`Block::seq`](super::Block::seq)).
    pub fn name(&self, seq: Option<NonZeroU64>) -> Option<&str> {
        self.named(seq).map(|name| name.name.as_str())
    }

    /// The name and category of the block with this number.
    pub fn named(&self, seq: Option<NonZeroU64>) -> Option<&BlockName> {
        let at = self.names.binary_search_by_key(&seq?, |name| name.seq).ok()?;
        self.names.get(at)
    }
}
