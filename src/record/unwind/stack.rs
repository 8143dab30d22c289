//! What a taken stack is, and how one that was taken before is known again.

/// Part of a thread's stack: from the lowest address to past the highest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackPart {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// A stack, outermost frame first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack<'a> {
    /// Code addresses, and perhaps [`FRAMES_LEFT_OUT`](crate::snapshot::FRAMES_LEFT_OUT).
    pub(crate) addresses: &'a [u64],
    /// [`hash_with`] of them one after the other.
    pub(crate) hash: u64,
    /// Frames were left out in the middle.
    pub(crate) shortened: bool,
    /// It may have code of modules that will be unloaded.
    pub(crate) may_go: bool,
    /// What tells where its words lie, if it may be known again by that.
    pub(crate) source: Option<&'a dyn HasSpacing>,
}

/// Knows where the words of a stack lie. Behind this, stacks can be kept without knowing who took them.
pub(crate) trait HasSpacing: std::fmt::Debug {
    /// Nothing if the stack cannot be known again by its words.
    fn spacing<'b>(&self, buffer: &'b mut SpacingBuffer) -> Option<Spacing<'b>>;
}

/// Where the words of a stack lie, as distances from its innermost frame's stack pointer, which is that of the caller
/// once it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spacing<'a> {
    /// The stack pointers of its frames, in the order of their addresses. The words below those are the addresses.
    pub(crate) offsets: &'a [u32],
    /// For each frame that is found by its rbp: where that was read, if not by the innermost one, and what it was.
    pub(crate) bps: &'a [[u32; 2]],
    /// The same for the word that ended the stack, a 0; or 0 if its outermost frame is known to have no caller.
    pub(crate) end: u32,
}

/// Frames of the deepest stack that has a spacing, and how many of them may be found by their rbp.
pub(crate) const SPACING_FRAMES: usize = 128;
pub(crate) const SPACING_BPS: usize = 8;

/// Room for a [`Spacing`].
#[derive(Debug)]
pub(crate) struct SpacingBuffer {
    pub(crate) offsets: [u32; SPACING_FRAMES],
    pub(crate) bps: [[u32; 2]; SPACING_BPS],
}

impl SpacingBuffer {
    pub(crate) const fn new() -> Self {
        Self { offsets: [0; SPACING_FRAMES], bps: [[0; 2]; SPACING_BPS] }
    }
}

/// A stack that was taken before, outermost frame first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    /// Who knows it goes by this.
    pub(crate) number: u32,
    pub(crate) addresses: &'a [u64],
    pub(crate) spacing: Spacing<'a>,
}

/// What was found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken<'a> {
    /// The stack that was guessed.
    Guessed(Known<'a>),
    /// Any other one.
    Walked(Stack<'a>),
}

/// The hash of a stack without frames.
pub(crate) const HASH_OF_NONE: u64 = 0x6d65_6d74_7261_6365;

/// The hash of a stack with one frame more, further in.
#[inline]
pub(crate) fn hash_with(hash: u64, address: u64) -> u64 {
    let product = u128::from(hash ^ address) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}
