//! What stands for registers where there is no unwinder of our own.

#[derive(Clone, Copy, Debug)]
pub(super) struct Registers {
    /// Below every stack: the library's whole stack is taken.
    pub(super) sp: u64,
}

impl Registers {
    #[inline(always)]
    pub(super) fn here() -> Self {
        Self { sp: 0 }
    }
}
