//! One entry of a trace.

use super::fields::{DictFields, number};
use super::rows::{SnapshotValues, stack_number};
use crate::pytorch_words as words;
use crate::read::pickle::{PickleValue, Refusal};
use crate::snapshot::RecordKind;

/// The action of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceAction {
    Alloc,
    FreeRequested,
    FreeCompleted,
    /// A segment, or a range of an expandable segment, was reserved or released.
    Segment {
        kind: RecordKind,
        is_range: bool,
    },
    OutOfMemory,
    /// Any action that does not change memory: a snapshot, an annotation, or something unknown.
    Other,
}

/// One entry of a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceEntry {
    pub(super) action: TraceAction,
    pub(super) address: u64,
    pub(super) size: u64,
    /// CUDA's handle of the stream.
    pub(super) stream: u64,
    /// Microseconds since 1970; `None` in files of torch 2.0.
    pub(super) time_us: Option<u64>,
    pub(super) device_free: Option<u64>,
    /// The number of a stack; 0 for none.
    pub(super) stack: u32,
    /// The index of the metadata's text.
    pub(super) metadata: Option<u32>,
}

impl TraceEntry {
    pub(super) fn of(fields: &DictFields<'_>, values: &SnapshotValues<'_>) -> Result<Self, Refusal> {
        let segment = |kind, is_range| TraceAction::Segment { kind, is_range };
        let action = match fields.find(words::ACTION) {
            Some(PickleValue::Text(words::ALLOC)) => TraceAction::Alloc,
            Some(PickleValue::Text(words::FREE_REQUESTED)) => TraceAction::FreeRequested,
            Some(PickleValue::Text(words::FREE_COMPLETED | words::FREE)) => TraceAction::FreeCompleted,
            Some(PickleValue::Text(words::SEGMENT_ALLOC)) => segment(RecordKind::Alloc, false),
            Some(PickleValue::Text(words::SEGMENT_MAP)) => segment(RecordKind::Alloc, true),
            Some(PickleValue::Text(words::SEGMENT_FREE)) => segment(RecordKind::Free, false),
            Some(PickleValue::Text(words::SEGMENT_UNMAP)) => segment(RecordKind::Free, true),
            Some(PickleValue::Text(words::OOM)) => TraceAction::OutOfMemory,
            _ => TraceAction::Other,
        };
        let has_address = !matches!(action, TraceAction::OutOfMemory | TraceAction::Other);
        let needed = |key| if has_address { fields.needed(key, values) } else { Ok(0) };
        let metadata = match fields.find(words::USER_METADATA) {
            Some(PickleValue::Text(id)) if values.text(PickleValue::Text(id)).is_some_and(|text| !text.is_empty()) => {
                Some(id)
            }
            _ => None,
        };
        Ok(Self {
            action,
            address: needed(words::ADDR)?,
            size: if action == TraceAction::Other { 0 } else { fields.needed(words::SIZE, values)? },
            stream: fields.find(words::STREAM).and_then(|stream| number(stream, values)).unwrap_or(0),
            time_us: fields.number(words::TIME_US, values)?,
            device_free: fields.number(words::DEVICE_FREE, values)?,
            stack: stack_number(fields.find(words::FRAMES), values),
            metadata,
        })
    }
}
