//! Memoized objects of a pickle (stacks, frames, names, contexts), and the segments that refer to them.

use std::num::NonZeroU32;

use foldhash::fast::RandomState;
use std::collections::HashMap;

use super::placed::PlacedSegment;
use crate::export::budget::Selection;
use crate::export::pickle::{Memo, Pickler};
use crate::pytorch_words as words;
use crate::snapshot::{Block, ContextId, Frame, SnapshotData, StackId};

/// If a block has a name, longer paths of scopes are left out.
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
    names: HashMap<&'a str, Memo, RandomState>,
    frames: HashMap<(&'a str, &'a str, u32), Memo, RandomState>,
    stacks: Vec<Option<Memo>>,
    contexts: Vec<Option<Memo>>,
}

impl<'a> Shared<'a> {
    pub(super) fn new(data: &'a SnapshotData, selection: &'a Selection<'a>) -> Self {
        Self {
            data,
            selection,
            names: HashMap::default(),
            frames: HashMap::default(),
            stacks: vec![None; data.stacks.len()],
            contexts: vec![None; data.contexts.len()],
        }
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
        // A path with a name is not memoized, but repeated in every entry.
        if path.is_empty() || path.len() > LONGEST_PATH { p.text(name) } else { p.text(&format!("{path}: {name}")) }
    }

    pub(super) fn context(&mut self, p: &mut Pickler<'_>, context: ContextId) {
        let number = context.0 as usize;
        if let Some(&Some(memo)) = self.contexts.get(number) {
            return p.get(memo);
        }
        p.text(&self.data.context_path(context));
        let memo = p.remember();
        if let Some(known) = self.contexts.get_mut(number) {
            *known = Some(memo);
        }
    }

    pub(super) fn stack(&mut self, p: &mut Pickler<'_>, stack: StackId) {
        let number = stack.0 as usize;
        if let Some(&Some(memo)) = self.stacks.get(number) {
            return p.get(memo);
        }
        let data = self.data;
        p.list(data.stacks.frames(stack), |p, frame| self.frame(p, frame));
        let memo = p.remember();
        if let Some(known) = self.stacks.get_mut(number) {
            *known = Some(memo);
        }
    }

    fn frame(&mut self, p: &mut Pickler<'_>, frame: &'a Frame) {
        let line = frame.line.map_or(0, NonZeroU32::get);
        let key = (frame.function_or_empty(), frame.file_or_empty(), line);
        if let Some(&memo) = self.frames.get(&key) {
            return p.get(memo);
        }
        p.dict(|p| {
            p.word(words::NAME);
            self.name(p, key.0);
            p.word(words::FILENAME);
            self.name(p, frame.file.as_deref().unwrap_or("??"));
            p.int_of(words::LINE, u64::from(line))
        });
        let memo = p.remember();
        self.frames.insert(key, memo);
    }

    fn name(&mut self, p: &mut Pickler<'_>, name: &'a str) {
        if let Some(&memo) = self.names.get(name) {
            return p.get(memo);
        }
        // Viewers' flamegraphs split at semicolons, which Rust's array types contain.
        p.text(&name.replace(';', ","));
        let memo = p.remember();
        self.names.insert(name, memo);
    }
}
