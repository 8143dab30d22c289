//! Memory that accumulates: lines that leave more live blocks with each repetition, for as long as the program runs.

use super::breakdown::at;
use super::labels::{Labels, line_label};
use crate::attribute::{AllocationSite, Attribution, HintedLifetime, allocation_site, is_interpreter};
use crate::hashed::{HashMap, HashSet};
use crate::recording::DeviceView;
use crate::snapshot::{Block, Category, DeviceSnapshot, Frame, LogPosition, NEVER, Record, StackId};

/// The repetitions of a line, and all allocations since its first one, are each divided into this many equal parts.
const PARTS: usize = 8;
/// A line accumulates only if it leaves blocks in at least this many of the parts of all allocations.
const MOST_PARTS: usize = 6;

/// A line whose blocks accumulate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccumulatingLine {
    /// The line, as in a table by [`Key::Line`](super::Key::Line).
    pub line: String,
    /// How often the line allocated.
    pub repetitions: usize,
    /// Blocks that were live when the line allocated for the last time, in the order of their allocation. Blocks from
    /// before the log have neither an address nor a time.
    pub stays: Vec<Block>,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// The bytes of those blocks that are still live at the end.
    pub bytes_at_end: u64,
}

/// The lines at which memory accumulates, most bytes first. Sampled blocks do not count. Parameters, optimizer state,
/// and caches of keys and values do not count either, because they are meant to stay, nor do pages that a suballocator
/// hands out in parts.
pub fn accumulation(device: &DeviceView<'_>) -> Vec<AccumulatingLine> {
    let last = device.categories().lives().last().map_or(0, |(life, _)| life.seq.get());
    let line = |(line, lives): (String, Vec<Allocated<'_>>)| {
        let module = line.strip_prefix('(').and_then(|line| line.strip_suffix(')'));
        // An interpreter's blocks are objects of a program whose lines are unknown.
        if module.is_some_and(is_interpreter) || !is_repeated(device.data(), &lives) {
            return None;
        }
        let (repetitions, mut stays) = of_line(lives, last, module.is_none())?;
        stays.sort_unstable_by_key(|life| life.seq);
        let bytes = |of: &mut dyn Iterator<Item = &&HintedLifetime>| of.map(|life| life.size).sum();
        let bytes_at_end = bytes(&mut stays.iter().filter(|life| life.to == NEVER));
        let bytes = bytes(&mut stays.iter());
        let stays = stays.iter().map(|life| block_of(device, life)).collect();
        Some(AccumulatingLine { line, repetitions, stays, bytes, bytes_at_end })
    };
    let mut lines: Vec<AccumulatingLine> = lines_that_go_on(device, last).into_iter().filter_map(line).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.bytes));
    lines
}

/// The allocations of the lines that may accumulate. Most lines leave nothing, so their allocations are not collected.
/// `last` is the `seq` of the log's last block.
fn lines_that_go_on<'a>(device: &'a DeviceView<'_>, last: u64) -> Vec<(String, Vec<Allocated<'a>>)> {
    let categories = device.categories();
    let is_meant = |category| matches!(category, Category::Parameter | Category::OptimizerState | Category::KvCache);
    let counts = |life: &HintedLifetime| {
        life.stack != StackId::NONE && !device.sampling.is_sampled(life.size) && !life.is_given_out()
    };
    let lives = || categories.lives().filter(|(life, of)| counts(life) && !is_meant(*of)).map(|(life, _)| life);
    let mut labels = Labels::of_stacks(device.data(), line_label);
    let (mut of_lines, mut of_stacks): (Vec<Spread>, Vec<Spread>) = Default::default();
    for life in lives() {
        at(&mut of_lines, labels.number_at(life.stack.0)).allocates(life);
        at(&mut of_stacks, life.stack.0 as usize).allocates(life);
    }
    for life in lives() {
        of_lines[labels.number_at(life.stack.0)].is_left(life, last);
        of_stacks[life.stack.0 as usize].is_left(life, last);
    }
    let mut by_line: Vec<Option<Vec<Allocated>>> = of_lines.iter().map(|line| line.goes_on().then(Vec::new)).collect();
    for (stack, _) in of_stacks.iter().enumerate().filter(|(_, stack)| stack.goes_on()) {
        by_line[labels.number_at(stack as u32)].get_or_insert_default();
    }
    for life in lives() {
        if let Some(line) = &mut by_line[labels.number_at(life.stack.0)] {
            line.push(Allocated { life, pass: categories.pass_of(life) });
        }
    }
    labels.names().zip(by_line).filter_map(|(name, lives)| Some((name.to_owned(), lives?))).collect()
}

#[derive(Clone, Copy)]
struct Allocated<'a> {
    life: &'a HintedLifetime,
    /// The backward pass or optimizer step that allocated the block, identified by the position at which the pass or
    /// step begins.
    pass: Option<LogPosition>,
}

/// The parts, of all allocations since its first one, in which a line or a call stack left blocks.
#[derive(Clone, Copy, Default)]
struct Spread {
    first: Option<u64>,
    newest: LogPosition,
    parts: [bool; PARTS],
}

impl Spread {
    fn of(lives: &[Allocated<'_>], last: u64) -> Self {
        let mut spread = Self::default();
        lives.iter().for_each(|one| spread.allocates(one.life));
        lives.iter().for_each(|one| spread.is_left(one.life, last));
        spread
    }

    /// To be called in the order of allocation.
    fn allocates(&mut self, life: &HintedLifetime) {
        self.first.get_or_insert(life.seq.get());
        self.newest = life.from;
    }

    /// To be called for each block, after `allocates` was called for all of them. If the block was live when the newest
    /// one was allocated, this notes the part in which the block was allocated. `last` is the `seq` of the log's last
    /// block.
    fn is_left(&mut self, life: &HintedLifetime, last: u64) {
        if let Some(first) = self.first.filter(|_| life.is_live_at(self.newest)) {
            let since_first = |seq: u64| u128::from(seq.saturating_sub(first));
            let part = since_first(life.seq.get()) * PARTS as u128 / (since_first(last) + 1);
            self.parts[(part as usize).min(PARTS - 1)] = true;
        }
    }

    fn goes_on(&self) -> bool {
        self.parts.iter().filter(|part| **part).count() >= MOST_PARTS
    }
}

/// For each allocation the index of its repetition, and the number of repetitions. A backward pass or an optimizer step
/// is one repetition, however often the line allocates in it.
fn repetitions(lives: &[Allocated<'_>]) -> (Vec<usize>, usize) {
    let (mut of_pass, mut count) = (HashMap::default(), 0);
    let mut next = || {
        count += 1;
        count - 1
    };
    let number = |one: &Allocated<'_>| match one.pass {
        Some(pass) => *of_pass.entry(pass).or_insert_with(&mut next),
        None => next(),
    };
    (lives.iter().map(number).collect(), count)
}

/// Whether one call in the line has enough repetitions. Calls are counted separately, because a long statement contains
/// many of them.
fn is_repeated(data: &Attribution<'_>, lives: &[Allocated<'_>]) -> bool {
    let mut calls: HashMap<StackId, Option<*const Frame>> = HashMap::default();
    let call_of = |stack| match allocation_site(data, stack) {
        AllocationSite::User(frame) | AllocationSite::Framework(frame) => Some(std::ptr::from_ref(frame)),
        AllocationSite::Unknown => None,
    };
    let mut by_call: HashMap<Option<*const Frame>, (HashSet<Option<LogPosition>>, usize)> = HashMap::default();
    lives.iter().any(|one| {
        let call = calls.entry(one.life.stack).or_insert_with_key(|stack| call_of(*stack));
        let (passes, count) = by_call.entry(*call).or_default();
        *count += usize::from(one.pass.is_none() || passes.insert(one.pass));
        *count >= PARTS
    })
}

fn block_of(device: &DeviceSnapshot, life: &HintedLifetime) -> Block {
    let record = life.from.checked_sub(1).and_then(|at| device.records.get(at as usize));
    let &HintedLifetime { seq, size, stack, context, thread, .. } = life;
    record.map_or(Block { seq: Some(seq), size, stack, context, thread, ..Block::default() }, Record::block)
}

/// How often a line allocated, and its blocks that stay. If the line as a whole does not accumulate, only those of its
/// call stacks count that do. Without `is_line`, the allocations have no names and form no line, so only stacks are
/// judged.
fn of_line(mut lives: Vec<Allocated<'_>>, last: u64, is_line: bool) -> Option<(usize, Vec<&HintedLifetime>)> {
    if is_line && let Some(stays) = accumulates(&lives, last) {
        return Some((lives.len(), stays));
    }
    // The sort is stable: the blocks of a stack stay in order.
    lives.sort_by_key(|one| one.life.stack);
    let stacks = lives.chunk_by(|a, b| a.life.stack == b.life.stack);
    let found = stacks.filter_map(|stack| Some((stack.len(), accumulates(stack, last)?)));
    found.reduce(|(count, mut all), (of_stack, stays)| {
        all.extend(stays);
        (count + of_stack, all)
    })
}

/// The blocks that stay, if they accumulate. `lives` are in the order of their allocation. `last` is the `seq` of the
/// log's last block.
fn accumulates<'a>(lives: &[Allocated<'a>], last: u64) -> Option<Vec<&'a HintedLifetime>> {
    let newest = lives.last()?;
    let stays = |one: &&Allocated<'_>| one.life.is_live_at(newest.life.from);
    if !Spread::of(lives, last).goes_on() {
        return None;
    }
    let (numbers, count) = repetitions(lives);
    if count < PARTS {
        return None;
    }
    let mut parts = [false; PARTS];
    for (number, _) in numbers.iter().zip(lives).filter(|(_, one)| stays(one)) {
        parts[number * PARTS / count] = true;
    }
    // Each part except the first must leave at least one block.
    if !parts.iter().skip(1).all(|part| *part) {
        return None;
    }
    let half: Vec<_> =
        numbers.iter().zip(lives).filter(|(number, _)| **number < count / 2).map(|(_, one)| *one).collect();
    let live_at =
        |lives: &[Allocated<'_>], at| lives.iter().filter(|one| one.life.is_live_at(at)).map(|one| one.life.size).sum();
    let (half_way, at_last): (u64, u64) = (live_at(&half, half.last()?.life.from), live_at(lives, newest.life.from));
    (half_way / 3 <= at_last / 4).then(|| lives.iter().filter(stays).map(|one| one.life).collect())
}
