//! The words that PyTorch's snapshots contain as keys and values. The reader and the writer of these
//! snapshots refer to a word by its index.

/// Declares a constant for each word, which is the word's index, and `WORDS`, the texts of all words by
/// index.
macro_rules! words {
    ($($name:ident: $text:literal,)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "named after the constants")]
        enum Index { $($name,)* }
        $(pub(crate) const $name: u32 = Index::$name as u32;)*
        pub(crate) const WORDS: &[&str] = &[$($text),*];
    };
}

words! {
    ACTION: "action",
    ACTIVE_ALLOCATED: "active_allocated",
    ACTIVE_AWAITING_FREE: "active_awaiting_free",
    ACTIVE_PENDING_FREE: "active_pending_free",
    ACTIVE_SIZE: "active_size",
    ADDR: "addr",
    ADDRESS: "address",
    ALLOC: "alloc",
    ALLOCATED_SIZE: "allocated_size",
    ALLOCATOR_SETTINGS: "allocator_settings",
    ALLOC_CONF: "PYTORCH_CUDA_ALLOC_CONF",
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
    FREE: "free",
    FREE_COMPLETED: "free_completed",
    FREE_REQUESTED: "free_requested",
    HISTORY: "history",
    HOST_SEGMENTS: "host_segments",
    HOST_TRACES: "host_traces",
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
    REAL_SIZE: "real_size",
    RECORDED_BY: "recorded_by",
    RECORDS_OVERWRITTEN: "records_overwritten",
    REQUESTED_SIZE: "requested_size",
    SAMPLED: "sampled",
    SAMPLE_INTERVAL: "sample_interval",
    SEGMENTS: "segments",
    SEGMENTS_ARE_ESTIMATED_FROM_ADDRESSES: "segments_are_estimated_from_addresses",
    SEGMENT_ALLOC: "segment_alloc",
    SEGMENT_FREE: "segment_free",
    SEGMENT_MAP: "segment_map",
    SEGMENT_POOL_ID: "segment_pool_id",
    SEGMENT_TYPE: "segment_type",
    SEGMENT_UNMAP: "segment_unmap",
    SIZE: "size",
    STAGE: "stage",
    START: "START",
    STATE: "state",
    STREAM: "stream",
    TIME_US: "time_us",
    TOTAL_SIZE: "total_size",
    USER_METADATA: "user_metadata",
}
