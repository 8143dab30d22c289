//! The calls of operators one after another, with the device's memory after each and the peak inside it.
//!
//! # What is a call
//! A log has allocations, not calls, so calls are told from stacks. Allocations belong together that follow one
//! another on their thread, have the same root ([`attribute::operator`](crate::attribute::operator)) and the same
//! frames and code addresses outside of it, from the line that called it outwards. Such a call has ended when, on its thread,
//! * something is allocated elsewhere or outside of every operator,
//! * a block is freed that is older than the call, or a scope is entered or left,
//! * a stack comes again by which the call has allocated: the line is called again. (Not where a block is reallocated to
//!   a larger one, not below candle in matrix kernels and thread pools, and not in an optimizer's step, which does the
//!   same for each variable.)
//!
//! Frees say where they happened only if stacks were asked for of frees too ([`StackContext::All`]); then they belong to
//! the call whose stack they have. Otherwise those of the call's own blocks belong to it as long as it has not ended, but the
//! free of what it allocated last does only if the call goes on to allocate: that block is the result as a rule, and it is
//! the program that drops it.
//!
//! # What is not here
//! Calls that allocate nothing, or only blocks below the recording's threshold, and what the log has overwritten. What
//! other threads allocate for a call (convolutions on the CPU) is in the device's totals, not in what the call
//! added.
//!
//! # Where it errs
//! An operator that calls another in a loop is listed once for each turn: `repeat` over several dimensions, a convolution in groups.
//! Steps of an optimizer by one line with nothing in between, and calls that were inlined into one line, count as one.
//! `tests/recording/operator_series.rs` has the rates and asserts them.
//!
//! [`StackContext::All`]: crate::StackContext::All

mod calls;
mod markers;
mod sites;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

pub(crate) use calls::{Call, calls};
pub use markers::{Marker, MarkerKind};

use super::labels::line_label;
use crate::snapshot::{DeviceSnapshot, SnapshotData};

/// One call of an operator. Bytes are those of the device, blocks below the threshold left out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperatorCall {
    /// What the program called: `matmul`.
    pub operator: Arc<str>,
    /// It is part of a backward pass.
    pub is_backward: bool,
    /// How many calls of this name came before: the first is 0, backward passes count apart.
    pub number: u64,
    /// The scopes in which it began, from the outermost inwards, joined by ` > `; empty outside every scope.
    pub scope: Arc<str>,
    /// The user line that called it.
    pub line: Arc<str>,
    /// The thread, by its number.
    pub thread: u32,
    /// When it allocated first: nanoseconds since the recording began.
    pub begin_ns: u64,
    /// When it allocated or freed last.
    pub end_ns: u64,
    /// How often it allocated.
    pub allocations: u64,
    /// What it allocated less what it freed, in bytes.
    pub added: i64,
    /// Allocated bytes just before it.
    pub before: u64,
    /// The largest allocated bytes while it ran, whoever allocated.
    pub peak: u64,
    /// Allocated bytes after it.
    pub allocated: u64,
    /// Active bytes after it.
    pub active: u64,
    /// Reserved bytes after it.
    pub reserved: u64,
}

impl OperatorCall {
    /// The operator with its running number: `matmul_3`, `matmul_0 (backward)`. No two calls of a series share it.
    pub fn name(&self) -> String {
        name(&self.operator, self.number, self.is_backward)
    }
}

pub(crate) fn name(operator: &str, number: u64, is_backward: bool) -> String {
    format!("{operator}_{number}{}", if is_backward { " (backward)" } else { "" })
}

/// The calls of operators on one device, in the order in which they ended.
///
/// Prints as a table of the ten calls that added most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperatorSeries {
    /// The program that was recorded.
    pub program: String,
    /// Whose memory it is, as [`Device`](crate::Device) prints: `cpu`, `cuda:0`.
    pub device: String,
    /// The calls.
    pub calls: Vec<OperatorCall>,
    /// Where phases and scopes begin.
    pub markers: Vec<Marker>,
    /// The device's peak of allocated bytes; larger than that of every call if it came outside of all.
    pub peak: u64,
    /// Bytes that were added outside of all calls, as far as the log goes back: with those of the calls, the
    /// change of the device's total.
    pub added_elsewhere: i64,
    /// Records that the log has overwritten: the calls before are missing.
    pub overwritten: u64,
    /// How often a thread asked again right after it was refused memory (`num_alloc_retries`).
    pub num_alloc_retries: u64,
    /// Allocations that were refused for lack of memory (`num_ooms`).
    pub num_ooms: u64,
    /// Only a sample of the blocks that are smaller than this was recorded: but for the recording's peak, all bytes and
    /// numbers of allocations are estimates. `None` if every block was.
    pub sample_interval: Option<u64>,
    /// Calls that a file left out to keep to a size; what they added is in `added_elsewhere`.
    pub left_out: u64,
}

impl OperatorSeries {
    /// The `count` calls that added most bytes, the largest first; equal ones in their order.
    pub fn top(&self, count: usize) -> Vec<&OperatorCall> {
        let mut calls: Vec<&OperatorCall> = self.calls.iter().collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.added));
        calls.truncate(count);
        calls
    }
}

/// The series of one device.
pub fn operators(data: &SnapshotData, device: &DeviceSnapshot) -> OperatorSeries {
    let calls = calls(data, device);
    let changed =
        device.records.iter().map(|record| super::log::change(device, record)).fold(0i64, i64::saturating_add);
    let added = calls.iter().map(|call| call.added).fold(0i64, i64::saturating_add);
    OperatorSeries {
        program: data.process.program.clone(),
        device: device.device.to_string(),
        markers: markers::markers(data, device, &calls),
        peak: device.peak.bytes,
        added_elsewhere: changed.saturating_sub(added),
        overwritten: device.overwritten,
        num_alloc_retries: device.stats.num_alloc_retries,
        num_ooms: device.stats.num_ooms,
        sample_interval: device.sample_interval(),
        left_out: 0,
        calls: described(data, &calls),
    }
}

fn described(data: &SnapshotData, calls: &[Call<'_>]) -> Vec<OperatorCall> {
    let mut texts = Texts::default();
    let describe = |call: &Call<'_>| OperatorCall {
        operator: texts.kept(call.operator),
        is_backward: call.is_backward,
        number: call.number,
        scope: texts.made(0, call.context.0, || data.context_path(call.context)),
        line: texts.made(1, call.stack.0, || line_label(data, call.stack.0)),
        thread: call.thread.number(),
        begin_ns: call.begin_ns,
        end_ns: call.end_ns,
        allocations: call.allocations.blocks(),
        added: call.added,
        before: call.before,
        peak: call.peak,
        allocated: call.allocated,
        active: call.allocated,
        reserved: call.reserved,
    };
    calls.iter().map(describe).collect()
}

/// Texts that many calls share, each once.
#[derive(Default)]
pub(crate) struct Texts {
    kept: std::collections::HashSet<Arc<str>>,
    made: std::collections::HashMap<(u8, u32), Arc<str>>,
}

impl Texts {
    pub(crate) fn kept(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.kept.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.kept.insert(text.clone());
        text
    }

    fn made(&mut self, kind: u8, key: u32, make: impl FnOnce() -> String) -> Arc<str> {
        if let Some(known) = self.made.get(&(kind, key)) {
            return known.clone();
        }
        let text = self.kept(&make());
        self.made.insert((kind, key), text.clone());
        text
    }
}

impl fmt::Display for MarkerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}
