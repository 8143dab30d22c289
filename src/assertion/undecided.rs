//! Undecided verdicts: work of threads that existed before the measurement and may have worked for the measured code.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::num::NonZeroU64;

use memtrace_core::analysis::line_and_callers;
use memtrace_core::attribute::Attribution;
use memtrace_core::snapshot::{Block, Device, SnapshotData, StackId, ThreadId};
use memtrace_core::units::{Bytes, grouped};
use memtrace_core::visible;

use super::measure::Measured;
use super::setup::left_out;
use crate::record::measure::{Helper, MeasuredCopy};
use crate::record::thread;
use crate::session::measured_snapshot;

/// Whose work an assertion counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CountedWork {
    pub(super) whole_process: bool,
    /// Work is left out if its thread or a function on its stack has this name.
    pub(super) allowed: Option<&'static str>,
}

/// The methods of an assertion's builder that set its field `counted`.
macro_rules! counted_methods {
    () => {
        /// Counts the allocations of all threads of the process. Such peaks have separate entries in the baselines.
        pub fn whole_process(self, whole_process: bool) -> Self {
            Self { counted: CountedWork { whole_process, ..self.counted }, ..self }
        }

        /// Ignores other threads' work that would make the verdict undecided, if this text occurs in the thread's name.
        /// The text may also be the name of a function on the thread's stack, or of that function's type, module or
        /// crate.
        pub fn allow(self, name: &'static str) -> Self {
            Self { counted: CountedWork { allowed: Some(name), ..self.counted }, ..self }
        }
    };
}
pub(super) use counted_methods;

/// The work that one assertion cannot attribute.
#[derive(Debug)]
pub(super) struct Undecided {
    /// Threads that may have worked for the code.
    helpers: Vec<Helper>,
    /// The largest block of each of these threads.
    largest: SnapshotData,
    /// The most bytes of handed-over work that were live at once, and (in `blocks`) these blocks.
    handed: u64,
    blocks: SnapshotData,
}

impl Undecided {
    /// The work on one device, or on all devices, without the work that `counted` allows.
    pub(super) fn of(measured: &Measured, device: Option<Device>, counted: CountedWork) -> Self {
        let is_selected = |of: Device| device.is_none_or(|device| device == of);
        let mut helpers: Vec<Helper> =
            measured.helpers().iter().filter(|helper| is_selected(helper.device)).copied().collect();
        helpers.sort_by_key(|helper| (std::cmp::Reverse(helper.bytes), helper.thread));
        let largest = snapshot_of(if helpers.is_empty() { vec![] } else { vec![MeasuredCopy::of_helpers(&helpers)] });
        // A thread's largest block may be a buffer that does not count. It may even be the thread's only block.
        let numbers: HashSet<u64> =
            largest.devices.iter().flat_map(|on| left_out(&largest, on).into_keys().map(NonZeroU64::get)).collect();
        let not_counted = (1..).zip(&mut helpers).filter(|(number, _)| numbers.contains(number));
        not_counted.for_each(|(_, helper)| helper.bytes = helper.bytes.saturating_sub(helper.largest));
        let stacks: Vec<StackId> = largest.devices.iter().flat_map(|on| &on.live).map(|block| block.stack).collect();
        let mut at = stacks.iter();
        helpers.retain(|helper| {
            let stack = at.next().copied().unwrap_or(StackId::NONE);
            !counted.allowed.is_some_and(|allowed| is_called(helper, &largest, stack, allowed))
        });
        let handed: Vec<MeasuredCopy> = measured.handed().iter().filter(|on| is_selected(on.device)).cloned().collect();
        let mut blocks = snapshot_of(handed);
        let mut devices = std::mem::take(&mut blocks.devices);
        for on in &mut devices {
            let left_out = left_out(&blocks, on);
            let is_allowed = |block: &Block, allowed| {
                has_frame(&blocks, block.stack, allowed) || is_thread(&blocks, block.thread, allowed)
            };
            on.peak.blocks.retain(|block| {
                !block.seq.is_some_and(|seq| left_out.contains_key(&seq))
                    && !counted.allowed.is_some_and(|allowed| is_allowed(block, allowed))
            });
        }
        blocks.devices = devices;
        let handed = blocks.devices.iter().flat_map(|on| &on.peak.blocks).map(|block| block.size).sum();
        Self { helpers, largest, handed, blocks }
    }

    /// The sum of the most bytes that each thread held, and of the handed-over work.
    pub(super) fn bytes(&self) -> u64 {
        self.helpers.iter().map(|helper| helper.bytes).sum::<u64>() + self.handed
    }

    /// The threads, and where they allocated their largest blocks.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        let live: Vec<_> = self.largest.devices.iter().flat_map(|on| &on.live).collect();
        for helper in &self.helpers {
            let is_its_largest = |block: &&&Block| (block.thread, block.size) == (helper.thread, helper.largest);
            let stack = live.iter().find(is_its_largest).map_or(StackId::NONE, |block| block.stack);
            let name = helper.name();
            let (name, most, count) = (visible::line(&name), Bytes(helper.bytes), grouped(helper.allocations));
            _ = writeln!(
                text,
                "    thread `{name}`: {most} at most, {count} allocations on {}; the largest:",
                helper.device
            );
            lines(&self.largest, stack, helper.largest, &mut text);
        }
        let mut handed: Vec<_> = self.blocks.devices.iter().flat_map(|on| &on.peak.blocks).collect();
        handed.sort_by_key(|block| std::cmp::Reverse(block.size));
        if let Some(block) = handed.first() {
            let (most, count) = (Bytes(self.handed), grouped(handed.len() as u64));
            _ = writeln!(text, "    handed-over work: {most} in {count} blocks at most; the largest:");
            lines(&self.blocks, block.stack, block.size, &mut text);
        }
        text
    }
}

fn snapshot_of(measured: Vec<MeasuredCopy>) -> SnapshotData {
    if measured.is_empty() { SnapshotData::default() } else { measured_snapshot(&measured) }
}

fn lines(data: &SnapshotData, stack: StackId, size: u64, text: &mut String) {
    for line in line_and_callers(&Attribution::new(data), stack, 2) {
        _ = writeln!(text, "        {} at {}", Bytes(size), visible::line(&line));
    }
}

fn has_frame(data: &SnapshotData, stack: StackId, name: &str) -> bool {
    data.stacks.frames(stack).any(|frame| has_part(frame.function_or_empty(), name))
}

/// Whether a function's path contains these whole names.
fn has_part(function: &str, name: &str) -> bool {
    let goes_on = |next: Option<char>| next.is_some_and(|next| next == '_' || next.is_alphanumeric());
    let is_whole = |(at, found): (usize, &str)| {
        let (before, after) = (function.get(..at), function.get(at + found.len()..));
        !goes_on(before.and_then(|text| text.chars().next_back()))
            && !goes_on(after.and_then(|text| text.chars().next()))
    };
    !name.is_empty() && function.match_indices(name).any(is_whole)
}

/// Whether the name fits one that the thread has now, or had when it was first seen or when it ended.
fn is_thread(data: &SnapshotData, thread: ThreadId, name: &str) -> bool {
    let [first, last] = thread::kept_names(thread);
    let now = data.process.threads.iter().find(|known| known.number == thread).map(|known| known.name.clone());
    first.into_iter().chain(last).chain(now).any(|known| is_name(&known, name))
}

/// Linux keeps only fifteen bytes of a thread's name, so a known name of this length may be cut.
fn is_name(known: &str, name: &str) -> bool {
    !name.is_empty() && known.contains(name) || known.len() == 15 && name.starts_with(known)
}

fn is_called(helper: &Helper, data: &SnapshotData, stack: StackId, name: &str) -> bool {
    is_name(&helper.name(), name) || has_frame(data, stack, name)
}

#[cfg(test)]
mod tests {
    use super::super::with_stacks;
    use super::*;

    #[test]
    fn work_is_allowed_by_the_name_of_its_thread_or_by_whole_names_of_a_function() {
        let function = "<app::data::Loader as core::iter::Iterator>::next::{{closure}}";
        for name in ["Loader", "app", "data::Loader", "next", "app::data"] {
            assert!(has_part(function, name), "{name}");
        }
        for name in ["", "Load", "loader", "ext", "data::Load", "tests"] {
            assert!(!has_part(function, name), "{name}");
        }
        assert!(is_name("loader 1", "loader") && is_name("a_name_that_is_", "a_name_that_is_cut"));
        assert!(!is_name("loader", "") && !is_name("a_name", "a_name_that_is_cut"));
    }

    #[test]
    fn any_function_on_a_stack_may_have_the_name() {
        let data = with_stacks(&[&["alloc::alloc", "app::Loader::next", "main"], &["app::forward", "main"]]);
        let has = |stack, name| has_frame(&data, StackId(stack), name);
        assert!(has(1, "Loader") && has(1, "main") && has(2, "main"));
        assert!(!has(2, "Loader") && !has(0, "main"));
    }
}
