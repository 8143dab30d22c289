//! Stacks as values, and their *spacings*, by which a known stack is recognised.
//!
//! A stored stack keeps its spacing: the distance of each return address from the innermost frame's stack pointer. For
//! each frame that is located by its fp, the spacing also says where that fp was read, and its value. If all these
//! words are at the same distances again, it is the same stack: each frame's rule, which holds for ever, leads from one
//! word to the next.

/// A range of a thread's stack, end exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackPart {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// A stack, outermost frame first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack<'a> {
    /// Code addresses, perhaps with [`FRAMES_LEFT_OUT`](crate::snapshot::FRAMES_LEFT_OUT) among them.
    pub(crate) addresses: &'a [u64],
    /// [`hash_with`] over all addresses.
    pub(crate) hash: u64,
    /// Frames in the middle were left out.
    pub(crate) shortened: bool,
    /// The stack may have code of objects that can be unloaded.
    pub(crate) may_go: bool,
    /// Computes the spacing, if the stack has one.
    pub(crate) source: Option<&'a dyn HasSpacing>,
}

/// Computes spacings, so that stacks can be stored without knowledge of the unwinder.
pub(crate) trait HasSpacing: std::fmt::Debug {
    /// `None` if the stack cannot be recognised by its words.
    fn spacing<'b>(&self, buffer: &'b mut SpacingBuffer) -> Option<Spacing<'b>>;
}

/// Where the words of a stack are, as distances from the stack pointer that the innermost frame has after its call
/// returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spacing<'a> {
    /// The end of the word with the return address to each frame, in the order of the addresses; 0 for the innermost
    /// frame. On x86-64, this is the frame's stack pointer.
    pub(crate) offsets: &'a [u32],
    /// For each frame located by its fp: where that fp was read (unless in the innermost frame's register), and its
    /// value.
    pub(crate) fps: &'a [[u32; 2]],
    /// The distance of the 0 that ended the stack, counted like `offsets`. 0 if the outermost frame's rule says that it
    /// has no caller.
    pub(crate) end: u32,
}

/// Limits for stacks that have a spacing: number of frames, and number of frames located by their fp. Compilers keep
/// frame pointers on aarch64, and omit them on x86-64.
pub(crate) const SPACING_FRAMES: usize = 128;
pub(crate) const SPACING_FPS: usize = if cfg!(target_arch = "aarch64") { SPACING_FRAMES } else { 8 };

#[derive(Debug)]
pub(crate) struct SpacingBuffer {
    pub(crate) offsets: [u32; SPACING_FRAMES],
    pub(crate) fps: [[u32; 2]; SPACING_FPS],
}

impl SpacingBuffer {
    pub(crate) const fn new() -> Self {
        Self { offsets: [0; SPACING_FRAMES], fps: [[0; 2]; SPACING_FPS] }
    }
}

/// A stored stack, outermost frame first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownStack<'a> {
    /// The stack's number in the table of stacks.
    pub(crate) number: u32,
    pub(crate) addresses: &'a [u64],
    pub(crate) spacing: Spacing<'a>,
}

/// Predicts the next stack of this thread. It is a trait and not a closure, because a method can be `inline(always)`:
/// an extra call would cost every stack some 30 instructions.
pub(crate) trait PredictStack<'a> {
    fn predict(self, innermost: u64) -> Option<KnownStack<'a>>;
}

/// Makes no prediction.
impl<'a> PredictStack<'a> for () {
    fn predict(self, _innermost: u64) -> Option<KnownStack<'a>> {
        None
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum FoundStack<'a> {
    Guessed(KnownStack<'a>),
    Walked(Stack<'a>),
}

pub(crate) const HASH_OF_NONE: u64 = 0x6d65_6d74_7261_6365;

/// The hash of a stack with one more frame inside.
#[inline]
pub(crate) fn hash_with(hash: u64, address: u64) -> u64 {
    let product = u128::from(hash ^ address) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}
