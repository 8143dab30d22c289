//! Index newtypes for the tables of a snapshot.

/// Index of a call stack in [`Stacks`](super::Stacks).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(#[doc(hidden)] pub u32);

impl StackId {
    /// No stack was kept.
    pub const NONE: Self = Self(0);
}

/// Index of a context, the interned path of open scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(#[doc(hidden)] pub u32);

impl ContextId {
    /// No scope was open.
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
