//! Indices into a snapshot's tables.

/// Index of a stack in [`Stacks`](super::Stacks). `NONE` where no stack was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(#[doc(hidden)] pub u32);

impl StackId {
    /// No stack was kept for this record.
    pub const NONE: Self = Self(0);
}

/// Index of a context, the path of open scopes. `ROOT` outside every scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(#[doc(hidden)] pub u32);

impl ContextId {
    /// Outside every scope.
    pub const ROOT: Self = Self(0);
}

/// A thread, numbered from 1 in the order in which memtrace first saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(#[doc(hidden)] pub u32);

impl ThreadId {
    /// The number.
    #[inline]
    pub fn number(self) -> u32 {
        self.0
    }
}
