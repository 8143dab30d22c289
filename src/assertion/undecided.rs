//! Work that may have been done for the code, by threads that were there before and of which nobody can tell.

use std::fmt::Write as _;

use super::measure::Measured;
use crate::analysis::line_and_callers;
use crate::record::measure::{DeviceMeasured, Helper};
use crate::session::measured_snapshot;
use crate::snapshot::{Device, SnapshotData, StackId};
use crate::units::{Bytes, grouped};

/// Whose memory an assertion counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// That of all threads.
    pub(super) whole_process: bool,
    /// What stands in the name of a thread, or in its stack, whose work may be left out.
    pub(super) allowed: Option<&'static str>,
}

/// What nobody can tell, of one assertion.
#[derive(Debug)]
pub(super) struct Undecided {
    helpers: Vec<Helper>,
    data: SnapshotData,
}

impl Undecided {
    /// Threads that share memory with what was measured, and allocated on the device; less those that are allowed to.
    pub(super) fn of(measured: &Measured, device: Option<Device>, counted: Counted) -> Self {
        let is_meant = |helper: &&Helper| helper.shares && device.is_none_or(|device| device == helper.device);
        let mut helpers: Vec<Helper> = measured.helpers().iter().filter(is_meant).copied().collect();
        helpers.sort_by_key(|helper| (std::cmp::Reverse(helper.bytes), helper.thread));
        let data = if helpers.is_empty() {
            SnapshotData::default()
        } else {
            measured_snapshot(&[DeviceMeasured::of_helpers(&helpers)])
        };
        let stacks: Vec<StackId> = stacks(&data);
        let mut at = stacks.iter();
        helpers.retain(|helper| {
            let stack = at.next().copied().unwrap_or(StackId::NONE);
            !counted.allowed.is_some_and(|allowed| is_called(helper, &data, stack, allowed))
        });
        Self { helpers, data }
    }

    /// The most that all of them held, each by itself.
    pub(super) fn bytes(&self) -> u64 {
        self.helpers.iter().map(|helper| helper.bytes).sum()
    }

    /// Who they are and where they allocated their largest block.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        let live: Vec<_> = self.data.devices.iter().flat_map(|device| &device.live).collect();
        for helper in &self.helpers {
            let stack = live.iter().find(|block| block.thread == helper.thread).map_or(StackId::NONE, |block| block.stack);
            let lines = line_and_callers(&self.data, stack, 2);
            let (name, most, count) = (helper.name(), Bytes(helper.bytes), grouped(helper.allocations));
            _ = writeln!(text, "    thread `{name}`: {most} at most, {count} allocations on {}; the largest:", helper.device);
            lines.iter().for_each(|line| _ = writeln!(text, "        {} at {line}", Bytes(helper.largest)));
        }
        text
    }
}

fn stacks(data: &SnapshotData) -> Vec<StackId> {
    data.devices.iter().flat_map(|device| &device.live).map(|block| block.stack).collect()
}

fn is_called(helper: &Helper, data: &SnapshotData, stack: StackId, name: &str) -> bool {
    // The system keeps fifteen bytes of a thread's name.
    let known = helper.name();
    known.contains(name)
        || known.len() == 15 && name.starts_with(&*known)
        || data.stacks.frames(stack).any(|frame| frame.function.contains(name) || frame.file.contains(name))
}
