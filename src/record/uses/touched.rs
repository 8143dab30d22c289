//! The blocks that one GPU operation uses.

use crate::record::memory::{OwnVec, System, try_push};

/// How an operation uses a block, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UseAccess {
    /// A kernel's argument: it may read and write the block.
    Unknown,
    /// A kernel's argument that is a pointer to `const`.
    Read,
    /// A copy that reads the block, and does not follow addresses in it.
    CopyFrom,
    /// A copy or fill that writes this many bytes from this address on, and reads nothing.
    Write(u64, u64),
    /// A copy or fill that writes rows with gaps between them, and reads nothing.
    WriteRows,
}

impl UseAccess {
    /// Whether the operation may follow addresses that the block contains.
    pub(super) fn follows(self) -> bool {
        matches!(self, Self::Unknown | Self::Read)
    }

    pub(super) fn only_reads(self) -> bool {
        matches!(self, Self::Read | Self::CopyFrom)
    }
}

/// A CUDA tensor map (TMA descriptor): 128 bytes with an encoded address.
pub(crate) type TensorMapWords = [u64; 16];

/// A block that an operation uses. `seq` distinguishes it from a later block in the same slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub(super) slot: u32,
    pub(super) seq: u64,
    pub(super) access: UseAccess,
}

const NONE: Touch = Touch { slot: 0, seq: 0, access: UseAccess::Unknown };
/// Nearly every kernel has fewer arguments than this.
const INLINE: usize = 16;

/// The blocks that an operation uses. The first ones are stored inline, on the stack, so most
/// operations allocate nothing.
#[derive(Debug)]
pub(crate) struct Touched {
    inline: [Touch; INLINE],
    count: usize,
    more: OwnVec<Touch>,
}

impl Touched {
    pub(crate) fn new() -> Self {
        Self { inline: [NONE; INLINE], count: 0, more: OwnVec::new_in(System) }
    }

    pub(super) fn len(&self) -> usize {
        self.count + self.more.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<Touch> {
        match at.checked_sub(self.count) {
            None => self.inline.get(at).copied(),
            Some(after) => self.more.get(after).copied(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Touch> {
        self.inline.iter().take(self.count).chain(self.more.iter())
    }

    /// Adds a block, or a further access to it, if there is memory.
    pub(super) fn add(&mut self, touch: Touch) {
        let known = self.inline.iter_mut().take(self.count).chain(self.more.iter_mut());
        if let Some(known) = known.into_iter().find(|known| known.slot == touch.slot) {
            if known.access != touch.access {
                known.access = UseAccess::Unknown;
            }
        } else if let Some(place) = self.inline.get_mut(self.count) {
            *place = touch;
            self.count += 1;
        } else {
            try_push(&mut self.more, touch);
        }
    }
}

/// The kind of an operation, for the totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    /// A kernel with a known layout.
    Kernel,
    /// A kernel or another operation whose arguments are unknown.
    Opaque,
    Copy,
    Fill,
    Graph,
}
