//! Operator series: the calls of operators in order, with the device's memory after each call and the peak inside it.
//!
//! # What counts as a call
//! The log contains allocations, not calls, so calls are inferred from stacks. Consecutive allocations of a thread
//! belong to one call if they have the same root ([`attribute::operator`](crate::attribute::operator)) and the same
//! frames and code addresses outside of it, from the calling line outwards. A call ends when its thread
//! * allocates elsewhere, or outside of every operator,
//! * frees a block that is older than the call, or enters or leaves a scope,
//! * allocates with a stack that the call has used before: the line calls the operator again. (This does not apply to
//!   reallocations that enlarge a block, to code below candle such as matrix kernels and thread pools, nor to optimizer
//!   steps, which repeat the same work for each variable.)
//!
//! The log does not record where calls end. If frees have stacks ([`StackContext::All`]), a free belongs to the call
//! with its stack. Otherwise, frees of the call's own blocks belong to it until it ends. The newest block is an
//! exception: it is usually the result, which the program drops, so its free counts only if the call continues to
//! allocate.
//!
//! # What is missing
//! Calls that allocate nothing, or only blocks below the threshold, and records that the log has overwritten. Memory
//! that other threads allocate for a call (convolutions on the CPU) is in the device's totals, but not in the bytes
//! that the call added.
//!
//! # Known errors
//! An operator that calls another in a loop is listed once for each iteration: `repeat` over several dimensions, a
//! grouped convolution. Optimizer steps by one line with nothing in between count as one call. So do calls that were
//! inlined into one line. `tests/recording/operator_series.rs` measures the rates and asserts them.
//!
//! [`StackContext::All`]: crate::StackContext::All

mod calls;
mod markers;
mod sites;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use crate::attribute::Attribution;
use crate::memo::Memo;
use crate::recording::DeviceView;
use crate::snapshot::StackId;

pub(crate) use calls::{Call, calls};
pub use markers::{Marker, MarkerKind};

use super::labels::line_label;

/// A call of an operator. Bytes are those of the device, without blocks below the threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperatorCall {
    /// The operation that the program called: `matmul`.
    pub operator: Arc<str>,
    /// Whether it is part of a backward pass.
    pub is_backward: bool,
    /// Number of earlier calls of this name; backward passes are counted separately.
    pub number: u64,
    /// The path of the scopes in which it began, outermost first, joined by ` > `.
    pub scope: Arc<str>,
    /// The user line.
    pub line: Arc<str>,
    /// The number of the thread.
    pub thread: u32,
    /// The time of its first allocation, in nanoseconds since the recording began.
    pub begin_ns: u64,
    /// The time of its last allocation or free.
    pub end_ns: u64,
    /// Number of its allocations.
    pub allocations: u64,
    /// Bytes that it allocated minus bytes that it freed.
    pub added: i64,
    /// Allocated bytes just before it.
    pub before: u64,
    /// Maximum of the allocated bytes while it ran, including allocations of other threads.
    pub peak: u64,
    /// Allocated bytes after it.
    pub allocated: u64,
    /// Active bytes after it.
    pub active: u64,
    /// Reserved bytes after it.
    pub reserved: u64,
}

impl OperatorCall {
    /// The operator with its number: `matmul_3`, `matmul_0 (backward)`. Unique in a series.
    pub fn name(&self) -> String {
        name(&self.operator, self.number, self.is_backward)
    }
}

pub(crate) fn name(operator: &str, number: u64, is_backward: bool) -> String {
    format!("{operator}_{number}{}", if is_backward { " (backward)" } else { "" })
}

/// The operator calls of a device, in the order in which they ended.
///
/// Displays as a table of the ten calls that added most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperatorSeries {
    /// The recorded program.
    pub program: String,
    /// The device as [`Device`](crate::Device) displays it: `cpu`, `cuda:0`.
    pub device: String,
    /// The calls.
    pub calls: Vec<OperatorCall>,
    /// Where phases and scopes begin.
    pub markers: Vec<Marker>,
    /// The device's peak of allocated bytes. It is larger than the peak of every call if it occurred outside of all
    /// calls.
    pub peak: u64,
    /// Bytes added outside of all calls. Together with the bytes that the calls added, they are the change of the
    /// device's total within the log.
    pub added_elsewhere: i64,
    /// Records that the log has overwritten: earlier calls are missing.
    pub overwritten: u64,
    /// Refused allocations that their thread repeated right away (`num_alloc_retries`).
    pub num_alloc_retries: u64,
    /// Allocations that were refused for lack of memory (`num_ooms`).
    pub num_ooms: u64,
    /// The sampling interval. In a sampled recording, all bytes and numbers of allocations are estimates, except the
    /// recording's peak.
    pub sample_interval: Option<u64>,
    /// Calls that a file left out to stay within its size; their bytes are in `added_elsewhere`.
    pub left_out: u64,
}

impl OperatorSeries {
    /// The `count` calls that added most bytes, largest first.
    pub fn top(&self, count: usize) -> Vec<&OperatorCall> {
        let mut calls: Vec<&OperatorCall> = self.calls.iter().collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.added));
        calls.truncate(count);
        calls
    }
}

/// The series of one device.
pub fn operators(device: &DeviceView<'_>) -> OperatorSeries {
    let data = device.data();
    let calls = calls(device);
    let changed =
        device.records.iter().map(|record| super::log::change(device, record)).fold(0i64, i64::saturating_add);
    let added = calls.iter().map(|call| call.added).fold(0i64, i64::saturating_add);
    OperatorSeries {
        program: data.process.program.clone(),
        device: device.device.to_string(),
        markers: markers::markers(device, &calls),
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

fn described(data: &Attribution<'_>, calls: &[Call<'_>]) -> Vec<OperatorCall> {
    let mut texts = Texts::default();
    let mut scopes = Memo::of(|context| data.context_path(context).into());
    let mut lines = Memo::of(|stack: StackId| line_label(data, stack.0).into());
    let describe = |call: &Call<'_>| OperatorCall {
        operator: texts.kept(call.operator),
        is_backward: call.is_backward,
        number: call.number,
        scope: scopes.get(call.context),
        line: lines.get(call.stack),
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

/// Interned texts, which calls share.
#[derive(Default)]
pub(crate) struct Texts(HashSet<Arc<str>>);

impl Texts {
    pub(crate) fn kept(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.0.insert(text.clone());
        text
    }
}
