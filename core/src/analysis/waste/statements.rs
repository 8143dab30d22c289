//! Finds statements and backward passes in the log.
//!
//! A *statement* is a sequence of operator calls of one thread at one line, with the same callers, in which no stack
//! repeats. The blocks of its last operator are its result. The others are *temporaries*: no variable of the program
//! can hold them.

use std::collections::{HashMap, HashSet};

use crate::analysis::line_label;
use crate::attribute::{AllocationSite, Attribution, allocation_site, is_made_anew, is_of_optimizer, operator};
use crate::numbered::Numbered;
use crate::snapshot::{ContextId, DeviceSnapshot, Record, RecordKind, StackId, ThreadId};

/// A backward pass, and everything that its thread does at the same line.
#[derive(Debug)]
pub(super) struct BackwardPass {
    pub(super) thread: ThreadId,
    pub(super) stack: StackId,
    pub(super) from: usize,
    /// The thread's first allocation at another line after the pass; `usize::MAX` if there is none.
    pub(super) end: usize,
    /// How often the pass allocates, by operator and stack. With most of an operator's stacks, it allocates once for
    /// each node of the operator.
    pub(super) nodes: HashMap<String, HashMap<StackId, usize>>,
}

impl BackwardPass {
    pub(super) fn nodes_of(&self, operator: &str) -> usize {
        let of = self.nodes.iter().filter(|(name, _)| name.split('|').any(|name| name == operator));
        of.flat_map(|(_, stacks)| stacks.values()).copied().max().unwrap_or(0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StatementSite {
    pub(super) line: usize,
    /// A number that stands for the callers of the line.
    pub(super) way: usize,
}

pub(super) struct Computed {
    /// Its position in the log.
    pub(super) at: usize,
    operator: usize,
}

pub(super) struct Statement {
    pub(super) thread: ThreadId,
    pub(super) site: StatementSite,
    pub(super) stacks: HashSet<StackId>,
    pub(super) blocks: Vec<Computed>,
    /// The position after its last alloc.
    pub(super) end: usize,
}

impl Statement {
    /// The temporaries, and the result.
    pub(super) fn parts(&self) -> (&[Computed], &[Computed]) {
        let last = self.blocks.last().map_or(0, |block| block.operator);
        let of_result = self.blocks.iter().rev().take_while(|block| block.operator == last).count();
        self.blocks.split_at(self.blocks.len() - of_result)
    }
}

#[derive(Clone, Copy)]
enum Place<'a> {
    Backward { line: usize, of: &'a str },
    Operator { site: StatementSite, operator: usize },
    Other { line: usize },
}

/// A walk over the log that finds statements and backward passes.
pub(super) struct StatementWalk<'a> {
    data: &'a Attribution<'a>,
    places: HashMap<(StackId, ContextId), Place<'a>>,
    numbers: Numbered<String>,
    ways: Numbered<Vec<usize>>,
    open: HashMap<ThreadId, Statement>,
    pub(super) done: Vec<Statement>,
    /// Where the statements of each line begin.
    pub(super) starts: HashMap<(ThreadId, usize), Vec<usize>>,
    pub(super) passes: Vec<BackwardPass>,
    /// The line of the pass that a thread is in, and the pass's index in `passes`.
    open_passes: HashMap<ThreadId, (usize, usize)>,
}

impl<'a> StatementWalk<'a> {
    fn place(&mut self, record: &Record) -> Place<'a> {
        let key = (record.stack, record.context);
        if let Some(place) = self.places.get(&key) {
            return *place;
        }
        let line = self.numbers.number(line_label(self.data, record.stack.0));
        let place = match operator(self.data, record.stack) {
            Some(found) if found.is_backward => Place::Backward { line, of: found.backward_of.unwrap_or_default() },
            Some(found)
                if !is_made_anew(self.data, record.stack)
                    && !is_of_optimizer(self.data, record.stack, record.context) =>
            {
                let operator = self.numbers.number(found.leaf.to_owned());
                Place::Operator { site: StatementSite { line, way: self.way(record.stack) }, operator }
            }
            _ => Place::Other { line },
        };
        self.places.insert(key, place);
        place
    }

    /// A number that stands for the callers of the user line.
    fn way(&mut self, stack: StackId) -> usize {
        let frames: Vec<usize> = self.data.stacks.frame_numbers(stack).collect();
        let user = match allocation_site(self.data, stack) {
            AllocationSite::User(frame) => self.data.stacks.frames(stack).position(|other| std::ptr::eq(other, frame)),
            _ => None,
        };
        let callers = frames.get(user.map_or(0, |at| at + 1)..).unwrap_or_default().to_vec();
        self.ways.number(callers)
    }

    /// All statements and passes of the log.
    pub(super) fn over(data: &'a Attribution<'a>, device: &DeviceSnapshot) -> Self {
        let (places, numbers, ways, open, done, starts, passes, open_passes) = Default::default();
        let mut walk = Self { data, places, numbers, ways, open, done, starts, passes, open_passes };
        let allocs = device.records.iter().enumerate().filter(|(_, record)| record.kind == RecordKind::Alloc);
        allocs.for_each(|(at, record)| walk.alloc(at, record));
        let open = std::mem::take(&mut walk.open);
        open.into_values().for_each(|statement| walk.close(Some(statement)));
        walk
    }

    /// Ends a statement. A statement of one block has no temporaries, so it is dropped.
    fn close(&mut self, statement: Option<Statement>) {
        let several = statement.filter(|statement| statement.blocks.len() > 1);
        self.done.extend(several.map(|statement| Statement { stacks: HashSet::new(), ..statement }));
    }

    fn alloc(&mut self, at: usize, record: &Record) {
        let place = self.place(record);
        let line = match place {
            Place::Backward { line, .. } | Place::Other { line } => line,
            Place::Operator { site, .. } => site.line,
        };
        self.pass(at, record, line, place);
        let Place::Operator { site, operator } = place else { return };
        let is_same = |open: &Statement| open.site == site && !open.stacks.contains(&record.stack);
        if !self.open.get(&record.thread).is_some_and(is_same) {
            let new = Statement { thread: record.thread, site, stacks: HashSet::new(), blocks: Vec::new(), end: at };
            let before = self.open.insert(record.thread, new);
            self.close(before);
            self.starts.entry((record.thread, site.line)).or_default().push(at);
        }
        if let Some(open) = self.open.get_mut(&record.thread) {
            open.stacks.insert(record.stack);
            open.blocks.push(Computed { at, operator });
            open.end = at + 1;
        }
    }

    fn pass(&mut self, at: usize, record: &Record, line: usize, place: Place<'a>) {
        let open = self.open_passes.get(&record.thread).copied();
        if let Some((_, pass)) = open.filter(|(of, _)| *of != line) {
            self.passes[pass].end = at;
            self.open_passes.remove(&record.thread);
        }
        let Place::Backward { of, .. } = place else { return };
        let next = self.passes.len();
        let (_, pass) = *self.open_passes.entry(record.thread).or_insert((line, next));
        if pass == next {
            let (thread, stack, nodes) = (record.thread, record.stack, HashMap::new());
            self.passes.push(BackwardPass { thread, stack, from: at, end: usize::MAX, nodes });
        }
        let nodes = &mut self.passes[pass].nodes;
        if !nodes.contains_key(of) {
            nodes.insert(of.to_owned(), HashMap::new());
        }
        nodes.get_mut(of).into_iter().for_each(|stacks| *stacks.entry(record.stack).or_default() += 1);
    }
}
