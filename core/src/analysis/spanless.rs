//! Detects dead `tracing` spans: blocks allocated by model code whose spans never became scopes.
//!
//! A span that was created before memtrace's `tracing` layer was installed can never be entered, and nothing reports
//! that. So the `span` rules list functions that certainly run in a span, and this module counts the blocks that they
//! allocate outside of every span. The list is incomplete on purpose: the count is a lower bound without false alarms.
//! A context knows whether a span created its path. If a span and a scope of the program have the same path, the path
//! counts as the span's.

use std::collections::HashSet;

use crate::attribute::{Attribution, belongs_to_a_span};
use crate::snapshot::{ContextId, Record, RecordKind, Spans, StackId};
use crate::units::{Bytes, grouped};

/// Blocks that should be in a span but are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spanless {
    /// Number of blocks known to the snapshot.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The blocks that candle's models allocated in functions with a span of their own, outside of every span, although
/// memtrace's layer was installed. A lower bound.
pub fn spanless(data: &Attribution<'_>) -> Spanless {
    // A scope that was lost (merged into its parent) may have been the span.
    if data.health.spans == Spans::NoLayer || data.health.lost_scopes > 0 {
        return Spanless::default();
    }
    let belongs: Vec<bool> =
        (0..data.stacks.len() as u32).map(|stack| belongs_to_a_span(data, StackId(stack))).collect();
    if !belongs.contains(&true) {
        return Spanless::default();
    }
    let node = |id: ContextId| data.contexts.get(id.0 as usize);
    let is_in_span = |context| data.context_ids(context).into_iter().any(|id| node(id).is_some_and(|node| node.module));
    let mut found = Spanless::default();
    for device in &data.devices {
        // A block may be in the log, live, and live at the peak; it counts once.
        let mut seen = HashSet::new();
        let allocs = device.records.iter().filter(|record| record.kind == RecordKind::Alloc).map(Record::block);
        for block in allocs.chain(device.live.iter().chain(&device.peak.blocks).copied()) {
            let belongs = belongs.get(block.stack.0 as usize) == Some(&true);
            if belongs && !is_in_span(block.context) && seen.insert(block.seq) {
                found.blocks += 1;
                found.bytes += block.size;
            }
        }
    }
    found
}

/// The cause and the advice, as two parts of a sentence, if there are spanless blocks.
pub fn spanless_note(data: &Attribution<'_>) -> Option<(String, &'static str)> {
    let Spanless { blocks, bytes } = spanless(data);
    let (cause, advice) = match data.health.spans {
        Spans::Silenced => (
            "level TRACE is switched off in the whole program",
            "give other layers their filters by with_filter, not the whole subscriber \
             (tracing's max_level features switch it off, too)",
        ),
        Spans::NoLayer | Spans::Heard => (
            "the model was loaded before memtrace::layer() was installed, or a filter on the subscriber hides them",
            "install memtrace::layer() before loading the model, and give other layers their filters by with_filter",
        ),
    };
    let what =
        format!("{} in {} blocks or more belong to spans of the model that never", Bytes(bytes), grouped(blocks));
    (blocks > 0).then(|| (format!("{what} became scopes: {cause}"), advice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::SnapshotData;
    use crate::snapshot::testing::{Story, frame, registry, stacks, two_lines_and_a_temporary};

    /// The stack of a function with a span.
    const MODEL: StackId = StackId(1);

    /// A program in which that function allocates through a function of a library.
    fn program(function: &str, file: &str) -> Story {
        let model = registry("candle-transformers-0.11.1/src/models/with_tracing.rs");
        let frames = vec![frame(function, &registry(file), 700), frame("net::Net::forward", &model, 7)];
        let mut trace = Story::cpu();
        trace.stacks(stacks(frames, [[0, 1]]));
        trace
    }

    /// Two blocks of the model at the peak, one of them still live, in a scope of the program.
    fn two_blocks(mut trace: Story) -> Story {
        trace.enter("forward").alloc("input", 2000).on(MODEL).alloc("weights", 1000).on(MODEL).leave("forward");
        trace.alloc("elsewhere", 500).free("weights");
        trace
    }

    fn candles() -> Story {
        program("candle_core::tensor::Tensor::relu", "candle-core-0.11.1/src/tensor.rs")
    }

    fn recorded(spans: Spans, trace: &Story) -> SnapshotData {
        let mut data = trace.build();
        data.health.spans = spans;
        data
    }

    fn in_a_model(spans: Spans) -> SnapshotData {
        recorded(spans, &two_blocks(candles()))
    }

    #[test]
    fn blocks_of_dead_spans_are_counted_once_each() {
        let found = |trace: &Story| spanless(&Attribution::new(&recorded(Spans::Heard, trace)));
        let dead = Spanless { blocks: 2, bytes: 3000 };
        assert_eq!(found(&two_blocks(candles())), dead);
        assert_eq!(found(two_blocks(candles()).without_log()), dead, "live and at the peak");
        let mut after_the_peak = candles();
        after_the_peak.alloc("peak", 10_000).free("peak").alloc("input", 2000).on(MODEL).without_log();
        assert_eq!(found(&after_the_peak), Spanless { blocks: 1, bytes: 2000 }, "live");
    }

    #[test]
    fn silence_where_spans_are_alive_or_nobody_asked_or_scopes_were_lost() {
        assert_eq!(spanless(&Attribution::new(&two_lines_and_a_temporary())), Spanless::default());
        assert_eq!(spanless(&Attribution::new(&in_a_model(Spans::NoLayer))), Spanless::default());
        let alive = recorded(Spans::Heard, two_blocks(candles()).module("forward"));
        assert_eq!(
            (spanless(&Attribution::new(&alive)), spanless_note(&Attribution::new(&alive))),
            (Spanless::default(), None)
        );
        let mut lost = in_a_model(Spans::Heard);
        lost.health.lost_scopes = 1;
        assert_eq!(spanless(&Attribution::new(&lost)), Spanless::default());
    }

    #[test]
    fn what_is_allocated_for_entering_a_span_is_not_counted() {
        let trace = two_blocks(program("tracing::span::Span::enter", "tracing-0.1.44/src/span.rs"));
        assert_eq!(spanless(&Attribution::new(&recorded(Spans::Heard, &trace))), Spanless::default());
    }

    #[test]
    fn the_cause_is_named_where_it_is_known() {
        let note = |spans| spanless_note(&Attribution::new(&in_a_model(spans))).unwrap();
        assert!(note(Spans::Heard).0.contains("loaded before memtrace::layer()"));
        assert!(note(Spans::Heard).1.contains("before loading the model"));
        assert!(note(Spans::Silenced).0.contains("level TRACE is switched off"));
        assert!(note(Spans::Silenced).0.starts_with("2.930 KiB in 2 blocks"), "{}", note(Spans::Silenced).0);
    }
}
