//! Memoized objects of a pickle (stacks, frames, names, contexts), and the segments that refer to them.

use std::num::NonZeroU32;

use super::placed::PlacedSegment;
use crate::export::budget::Selection;
use crate::export::pickle::{Memo, Pickler};
use crate::hashed::HashMap;
use crate::pytorch_words as words;
use crate::snapshot::{Block, ContextId, Frame, SnapshotData, StackId};

/// The most bytes of a path of scopes that is written before a block's name. A longer path is left out.
const LONGEST_PATH: usize = 1024;

/// The size that a block takes in its segment; an empty block takes one byte.
fn extent(block: &Block) -> u64 {
    block.size.max(1)
}

/// Objects that are written once and then referred to. Entries, blocks and segments are never shared, because the
/// viewer modifies them.
pub(super) struct Shared<'a> {
    pub(super) data: &'a SnapshotData,
    pub(super) selection: &'a Selection<'a>,
    known: HashMap<Once<'a>, Memo>,
}

/// An object that is written once.
#[derive(PartialEq, Eq, Hash)]
enum Once<'a> {
    Name(&'a str),
    Frame(&'a str, &'a str, u32),
    Stack(StackId),
    Context(ContextId),
}

impl<'a> Shared<'a> {
    pub(super) fn new(data: &'a SnapshotData, selection: &'a Selection<'a>) -> Self {
        Self { data, selection, known: HashMap::default() }
    }

    /// Writes an object, or a reference to it if it was written before.
    fn once(&mut self, p: &mut Pickler<'_>, object: Once<'a>, write: impl FnOnce(&mut Self, &mut Pickler<'_>)) {
        if let Some(&memo) = self.known.get(&object) {
            return p.get(memo);
        }
        write(self, p);
        let memo = p.remember();
        self.known.insert(object, memo);
    }

    pub(super) fn segment(&mut self, p: &mut Pickler<'_>, placed: &PlacedSegment) {
        let active: u64 = placed.blocks.iter().map(extent).sum();
        let requested: u64 = placed.blocks.iter().map(|block| block.size).sum();
        p.dict(|p| {
            p.int_of(words::DEVICE, placed.device);
            p.int_of(words::ADDRESS, placed.segment.address);
            p.int_of(words::TOTAL_SIZE, placed.segment.size);
            p.int_of(words::ALLOCATED_SIZE, active);
            p.int_of(words::ACTIVE_SIZE, active);
            p.int_of(words::REQUESTED_SIZE, requested);
            p.int_of(words::STREAM, 0);
            p.word(words::SEGMENT_TYPE);
            p.word(words::LARGE);
            p.word(words::SEGMENT_POOL_ID);
            let (first, second) = placed.segment.pool.unwrap_or_default();
            p.pair(first, second);
            p.word(words::IS_EXPANDABLE);
            p.bool(false);
            p.word(words::FRAMES);
            self.stack(p, StackId::NONE);
            p.word(words::BLOCKS);
            self.blocks(p, placed)
        })
    }

    /// Writes live blocks and the gaps between them, which together fill the segment.
    fn blocks(&mut self, p: &mut Pickler<'_>, placed: &PlacedSegment) {
        let mut tiles: Vec<(u64, u64, Option<&Block>)> = Vec::new();
        let mut at = placed.segment.address;
        for block in &placed.blocks {
            if block.address > at {
                tiles.push((at, block.address - at, None));
            }
            tiles.push((block.address, extent(block), Some(block)));
            at = block.address + extent(block);
        }
        let end = placed.segment.address + placed.segment.size;
        if end > at {
            tiles.push((at, end - at, None));
        }
        p.list(tiles, |p, (address, size, block)| {
            p.dict(|p| {
                p.int_of(words::ADDRESS, address);
                p.int_of(words::SIZE, size);
                p.int_of(words::REQUESTED_SIZE, block.map_or(0, |block| block.size));
                p.word(words::STATE);
                p.word(if block.is_some() { words::ACTIVE_ALLOCATED } else { words::INACTIVE });
                p.word(words::FRAMES);
                self.stack(p, block.map_or(StackId::NONE, |block| block.stack))
            })
        })
    }

    /// Writes the path of scopes, with the block's name if it has one: `train > load: weights`.
    pub(super) fn metadata(&mut self, p: &mut Pickler<'_>, context: ContextId, name: Option<&str>) {
        let Some(name) = name else { return self.context(p, context) };
        let path = self.data.context_path(context);
        // A path with a name is not memoized: each entry has its text again.
        if path.is_empty() || path.len() > LONGEST_PATH { p.text(name) } else { p.text(&format!("{path}: {name}")) }
    }

    pub(super) fn context(&mut self, p: &mut Pickler<'_>, context: ContextId) {
        self.once(p, Once::Context(context), |this, p| p.text(&this.data.context_path(context)));
    }

    pub(super) fn stack(&mut self, p: &mut Pickler<'_>, stack: StackId) {
        let frames = self.data.stacks.frames(stack);
        self.once(p, Once::Stack(stack), |this, p| p.list(frames, |p, frame| this.frame(p, frame)));
    }

    fn frame(&mut self, p: &mut Pickler<'_>, frame: &'a Frame) {
        let line = frame.line.map_or(0, NonZeroU32::get);
        let name = frame.function_or_empty();
        self.once(p, Once::Frame(name, frame.file_or_empty(), line), |this, p| {
            p.dict(|p| {
                p.word(words::NAME);
                this.name(p, name);
                p.word(words::FILENAME);
                this.name(p, frame.file.as_deref().unwrap_or("??"));
                p.int_of(words::LINE, u64::from(line))
            });
        });
    }

    fn name(&mut self, p: &mut Pickler<'_>, name: &'a str) {
        // Viewers' flamegraphs split at semicolons, which Rust's array types contain.
        self.once(p, Once::Name(name), |_, p| p.text(&name.replace(';', ",")));
    }
}
