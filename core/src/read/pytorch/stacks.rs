//! Makes the stacks of a recording from those of a snapshot: only those that are in use, numbered in the order of first
//! use.

use std::collections::HashMap;
use std::num::{NonZeroU32, NonZeroU64};

use super::rows::{FrameRow, SnapshotValues};
use super::shapes::SnapshotTables;
use crate::read::pickle::PickleValue;
use crate::snapshot::{CodeAddress, DeviceSnapshot, Frame, StackId, Stacks};

/// The first of the numbers that replace code addresses, which snapshots lack.
const FIRST_ADDRESS: u64 = 1 << 32;
/// The file of a frame whose file is unknown, as in the snapshots themselves.
const UNKNOWN_FILE: &str = "??";

struct Numbering<'t> {
    frames: &'t [(FrameRow, ())],
    old: Vec<&'t [u32]>,
    /// Indexed by the old numbers.
    new_stacks: Vec<Option<StackId>>,
    new_frames: HashMap<u32, u32>,
    /// Stacks by content. Two old stacks may become equal, because names lose their arguments.
    by_calls: HashMap<Vec<u32>, StackId>,
    by_frame: HashMap<Frame, u32>,
    stacks: Stacks,
    /// The stack of blocks that are older than the log and have no frames.
    before: Option<StackId>,
}

/// Gives each used stack of the devices its final number.
pub(super) fn number_stacks(
    devices: &mut [DeviceSnapshot],
    tables: &SnapshotTables,
    values: &SnapshotValues<'_>,
) -> Stacks {
    let old = tables.stacks();
    let mut new_stacks = vec![None; old.len()];
    new_stacks.first_mut().into_iter().for_each(|none| *none = Some(StackId::NONE));
    let mut stacks = Stacks::default();
    stacks.starts.push(0);
    let (new_frames, by_frame) = Default::default();
    let by_calls = HashMap::from([(Vec::new(), StackId::NONE)]);
    let frames = tables.frames.rows();
    let mut numbering = Numbering { frames, old, new_stacks, new_frames, by_calls, by_frame, stacks, before: None };
    for device in devices {
        let before = device.overwritten;
        let is_older = |seq: Option<NonZeroU64>| seq.is_some_and(|seq| seq.get() <= before);
        for block in device.live.iter_mut().chain(&mut device.peak.blocks) {
            block.stack = numbering.allocated_at(block.stack, is_older(block.seq), values);
        }
        for record in &mut device.records {
            record.stack = numbering.stack(record.stack, values);
            record.alloc_stack = numbering.allocated_at(record.alloc_stack, is_older(record.alloc_seq), values);
        }
        let segments = device.segment_records.iter_mut().map(|segment| &mut segment.stack);
        let refused = device.ooms.iter_mut().map(|oom| &mut oom.stack);
        segments.chain(refused).for_each(|stack| *stack = numbering.stack(*stack, values));
    }
    numbering.stacks
}

impl Numbering<'_> {
    fn allocated_at(&mut self, old: StackId, is_older: bool, values: &SnapshotValues<'_>) -> StackId {
        match self.stack(old, values) {
            StackId::NONE if is_older => *self.before.get_or_insert_with(|| next_stack(&mut self.stacks)),
            stack => stack,
        }
    }

    fn stack(&mut self, old: StackId, values: &SnapshotValues<'_>) -> StackId {
        let number = old.0 as usize;
        if let Some(&Some(new)) = self.new_stacks.get(number) {
            return new;
        }
        let frames = self.old.get(number).copied().unwrap_or_default();
        let calls: Vec<u32> = frames.iter().map(|frame| self.frame(*frame, values)).collect();
        let stacks = &mut self.stacks;
        let new = *self.by_calls.entry(calls).or_insert_with_key(|calls| {
            let new = next_stack(stacks);
            stacks.calls.extend(calls);
            new
        });
        self.new_stacks.get_mut(number).into_iter().for_each(|slot| *slot = Some(new));
        new
    }

    fn frame(&mut self, old: u32, values: &SnapshotValues<'_>) -> u32 {
        if let Some(new) = self.new_frames.get(&old) {
            return *new;
        }
        let none = FrameRow { name: 0, file: None, line: 0 };
        let row = self.frames.get(old as usize).map_or(none, |(row, ())| *row);
        let text = |id| values.text(PickleValue::Text(id)).unwrap_or_default();
        let file = row.file.map(text).filter(|file| !file.is_empty()).unwrap_or(UNKNOWN_FILE);
        let function = without_arguments(text(row.name), file).to_owned();
        let (file, line) = (Some(file.to_owned()), NonZeroU32::new(row.line));
        let frame = Frame { function: Some(function), file, line, inlined: false };
        let next = self.stacks.frames.len() as u32;
        let new = *self.by_frame.entry(frame.clone()).or_insert(next);
        if new == next {
            self.stacks.frames.push(frame);
            let address = FIRST_ADDRESS + u64::from(new);
            self.stacks.addresses.push(CodeAddress { address, object: None, offset: 0, frames: new..new + 1 });
        }
        self.new_frames.insert(old, new);
        new
    }
}

fn next_stack(stacks: &mut Stacks) -> StackId {
    stacks.starts.push(stacks.calls.len() as u32);
    StackId(stacks.starts.len() as u32 - 1)
}

/// The name of a C++ function without its arguments. Other names stay unchanged.
fn without_arguments<'n>(name: &'n str, file: &str) -> &'n str {
    if file.ends_with(".py") || !name.contains("::") {
        return name;
    }
    let (mut depth, mut from) = (0usize, 0);
    for (at, byte) in name.bytes().enumerate() {
        let rest = name.get(at..).unwrap_or_default();
        match byte {
            _ if at < from => {}
            b'<' => depth += 1,
            b'>' => depth = depth.saturating_sub(1),
            b'(' if rest.starts_with("(anonymous namespace)") => from = at + "(anonymous namespace)".len(),
            b'(' if name.get(..at).is_some_and(|before| before.ends_with("operator")) => from = at + "()".len(),
            b'(' if depth == 0 && at > 0 => return name.get(..at).unwrap_or(name),
            _ => {}
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_cpp_lose_their_arguments() {
        for (name, short) in [
            ("at::_ops::bmm::call(at::Tensor const&, at::Tensor const&)", "at::_ops::bmm::call"),
            (
                "torch::cuda::(anonymous namespace)::gather_with_cpp()",
                "torch::cuda::(anonymous namespace)::gather_with_cpp",
            ),
            ("torch::autograd::Node::operator()(std::vector<at::Tensor>&&)", "torch::autograd::Node::operator()"),
            ("void at::f<at::g(int)>(at::h const&)", "void at::f<at::g(int)>"),
            ("_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault"),
        ] {
            assert_eq!(without_arguments(name, "??"), short);
            assert_eq!(without_arguments(short, "??"), short);
        }
        assert_eq!(without_arguments("A::f(x)", "/a.py"), "A::f(x)");
    }
}
