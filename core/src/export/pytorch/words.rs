//! String constants of PyTorch's snapshots: keys, actions, states.

use crate::export::pickle::{Pickler, Word};

/// Makes a constant for each string, numbered in order.
macro_rules! words {
    ($($name:ident: $text:literal,)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "named after the constants")]
        enum Number { $($name,)* }
        $(pub(super) const $name: Word = Word::new(Number::$name as u8, $text);)*
    };
}

words! {
    ACTION: "action",
    ACTIVE_ALLOCATED: "active_allocated",
    ACTIVE_SIZE: "active_size",
    ADDR: "addr",
    ADDRESS: "address",
    ALLOC: "alloc",
    ALLOCATED_SIZE: "allocated_size",
    ALLOCATOR_SETTINGS: "allocator_settings",
    BLOCKS: "blocks",
    COMPILE_CONTEXT: "compile_context",
    DEVICE: "device",
    DEVICES: "devices",
    DEVICE_FREE: "device_free",
    DEVICE_TRACES: "device_traces",
    END: "END",
    EXTERNAL_ANNOTATIONS: "external_annotations",
    FILENAME: "filename",
    FRAMES: "frames",
    FREE_COMPLETED: "free_completed",
    FREE_REQUESTED: "free_requested",
    INACTIVE: "inactive",
    IS_EXPANDABLE: "is_expandable",
    LARGE: "large",
    LEFT_OUT: "left_out",
    LINE: "line",
    MAX_ENTRIES: "max_entries",
    MIN_SIZE: "min_size",
    NAME: "name",
    NOT_AVAILABLE: "N/A",
    OOM: "oom",
    PROGRAM: "program",
    RECORDED_BY: "recorded_by",
    RECORDS_OVERWRITTEN: "records_overwritten",
    REQUESTED_SIZE: "requested_size",
    SAMPLED: "sampled",
    SAMPLE_INTERVAL: "sample_interval",
    SEGMENTS: "segments",
    SEGMENTS_ARE_ESTIMATED_FROM_ADDRESSES: "segments_are_estimated_from_addresses",
    SEGMENT_ALLOC: "segment_alloc",
    SEGMENT_FREE: "segment_free",
    SEGMENT_POOL_ID: "segment_pool_id",
    SEGMENT_TYPE: "segment_type",
    SIZE: "size",
    STAGE: "stage",
    START: "START",
    STATE: "state",
    STREAM: "stream",
    TIME_US: "time_us",
    TOTAL_SIZE: "total_size",
    USER_METADATA: "user_metadata",
}

#[inline]
pub(super) fn number(p: &mut Pickler<'_>, key: Word, value: u64) {
    p.word(key);
    p.int(value);
}
