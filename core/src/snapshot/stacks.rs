//! Stack table: deduplicated call stacks as lists of code addresses, and the frames that the addresses stand for.

use std::num::NonZeroU32;
use std::ops::Range;

use super::ids::StackId;
use super::objects::{LoadedObject, ObjectSpans};

/// A source-level function; an inlined function has a frame of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// Its symbol name, with a path where the symbol table has one.
    pub function: Option<String>,
    /// Source file as the compiler recorded it; `None` without debug information.
    pub file: Option<String>,
    /// Line in that file.
    pub line: Option<NonZeroU32>,
    /// True if the compiler inlined this function into the function of the next frame.
    pub inlined: bool,
}

impl Frame {
    /// `function`, or an empty text if it is unknown.
    pub fn function_or_empty(&self) -> &str {
        self.function.as_deref().unwrap_or_default()
    }

    /// `file`, or an empty text if it is unknown.
    pub fn file_or_empty(&self) -> &str {
        self.file.as_deref().unwrap_or_default()
    }

    /// `file`, unless it is PyTorch's word for an unknown file.
    pub(crate) fn known_file(&self) -> Option<&str> {
        self.file.as_deref().filter(|file| !matches!(*file, "" | "??"))
    }
}

/// A code address of a stack. It has several frames if calls were inlined there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeAddress {
    /// The address in the process. If its object was loaded where an unloaded object had been, the upper 16 bits
    /// contain a number that tells the two objects apart. [`LoadedObject::base`] and [`LoadedObject::range`] then have
    /// the same upper bits.
    pub address: u64,
    /// Index of its object in [`SnapshotData::objects`](super::SnapshotData::objects).
    pub object: Option<u32>,
    /// The address in the object's file.
    pub offset: u64,
    /// Its frames in [`Stacks::frames`], innermost first.
    pub frames: Range<u32>,
}

impl CodeAddress {
    /// An address that is not symbolised yet, with the object that contains it.
    pub(crate) fn in_objects(address: u64, objects: &[LoadedObject], spans: &ObjectSpans) -> Self {
        let object = spans.find(address);
        let offset = object.and_then(|i| objects.get(i)).map_or(0, |object| address.wrapping_sub(object.base));
        Self { address, object: object.map(|i| i as u32), offset, frames: 0..0 }
    }
}

/// All call stacks of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stacks {
    /// Start of each stack in `calls`; stack 0 is empty. A second empty stack may exist: blocks older than the log have
    /// it if the file does not say where they were allocated.
    pub(crate) starts: Vec<u32>,
    /// Indices into `addresses`, innermost call first, stack after stack.
    pub(crate) calls: Vec<u32>,
    /// Unique code addresses.
    pub addresses: Vec<CodeAddress>,
    /// Frames of all addresses.
    pub frames: Vec<Frame>,
}

/// Pseudo-address in place of the omitted middle frames of a deep stack.
pub const FRAMES_LEFT_OUT: u64 = 1;

impl Stacks {
    /// Makes a table of these stacks, which are numbered from 1 on. Each stack is a list of indices into `addresses`,
    /// innermost call first.
    #[doc(hidden)]
    pub fn of(
        addresses: Vec<CodeAddress>,
        frames: Vec<Frame>,
        stacks: impl IntoIterator<Item = impl AsRef<[u32]>>,
    ) -> Self {
        let (mut starts, mut calls) = (vec![0], Vec::new());
        for stack in stacks {
            starts.push(calls.len() as u32);
            calls.extend_from_slice(stack.as_ref());
        }
        Self { starts, calls, addresses, frames }
    }

    /// Number of stacks, including the empty one.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// True if not even the empty stack exists.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The code addresses of a stack, innermost call first.
    pub fn addresses(&self, stack: StackId) -> impl DoubleEndedIterator<Item = &CodeAddress> + '_ {
        let calls = self.calls_of(stack);
        calls.iter().filter_map(|&call| self.addresses.get(call as usize))
    }

    /// The frames of a stack, innermost first.
    pub fn frames(&self, stack: StackId) -> impl DoubleEndedIterator<Item = &Frame> + '_ {
        self.addresses(stack).flat_map(|address| self.frames_at(address))
    }

    /// The frames of a stack as indices into `frames`.
    pub(crate) fn frame_numbers(&self, stack: StackId) -> impl DoubleEndedIterator<Item = usize> + '_ {
        let numbers = |address: &CodeAddress| {
            let start = address.frames.start as usize;
            start..start + self.frames_at(address).len()
        };
        self.addresses(stack).flat_map(numbers)
    }

    /// Each stack as indices into `addresses`, the empty one first.
    pub(crate) fn each_calls(&self) -> impl ExactSizeIterator<Item = &[u32]> + '_ {
        (0..self.starts.len()).map(|stack| self.calls_of(StackId(stack as u32)))
    }

    /// The frames of an address, innermost first.
    pub(crate) fn frames_at(&self, address: &CodeAddress) -> &[Frame] {
        self.frames.get(address.frames.start as usize..address.frames.end as usize).unwrap_or(&[])
    }

    /// True for the stack of blocks older than the log.
    pub(crate) fn is_before_recording(&self, stack: StackId) -> bool {
        stack != StackId::NONE && (stack.0 as usize) < self.starts.len() && self.calls_of(stack).is_empty()
    }

    fn calls_of(&self, stack: StackId) -> &[u32] {
        let index = stack.0 as usize;
        let Some(&start) = self.starts.get(index) else { return &[] };
        let end = self.starts.get(index + 1).map_or(self.calls.len(), |&next| next as usize);
        self.calls.get(start as usize..end).unwrap_or(&[])
    }
}
