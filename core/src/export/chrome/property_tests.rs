//! Random programs of allocs, frees and scopes, against a naive oracle.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::tests::{blocks, events, layout_of, timeline_of};
use super::{ChromeTrace, MemoryLayout, Steps};
use crate::export::Export;
use crate::recording::DeviceView;
use crate::snapshot::testing::{LINE_7, Story};
use crate::snapshot::{Record, RecordKind, SnapshotData};

const SCOPES: [&str; 4] = ["a", "a > b", "a > b > c", "d"];

#[derive(Clone, Debug)]
enum TraceOp {
    Alloc {
        place: u64,
        size: u64,
    },
    Free {
        nth: usize,
    },
    /// The free of a block from before the recording.
    FreeUnknown {
        size: u64,
    },
    Scope {
        thread: u32,
        context: usize,
        enter: bool,
    },
}

fn op() -> impl Strategy<Value = TraceOp> {
    prop_oneof![
        4 => (0..40u64, 0..=64u64).prop_map(|(place, size)| TraceOp::Alloc { place, size }),
        3 => any::<usize>().prop_map(|nth| TraceOp::Free { nth }),
        1 => (1..50u64).prop_map(|size| TraceOp::FreeUnknown { size }),
        3 => (1..3u32, 0..SCOPES.len(), any::<bool>()).prop_map(|(thread, context, enter)| TraceOp::Scope { thread, context, enter }),
    ]
}

/// A naive ledger after each operation.
#[derive(Clone, Debug, Default)]
struct State {
    /// The sizes of the live blocks, by place.
    live: BTreeMap<u64, u64>,
    unknown: u64,
}

impl State {
    fn total(&self) -> u64 {
        self.unknown + self.live.values().sum::<u64>()
    }
}

/// The recording of a program whose log keeps the newest `kept` records, and the states before the log and after each
/// of its records.
fn run(ops: &[TraceOp], kept: usize) -> (SnapshotData, Vec<State>) {
    let unknown = ops.iter().map(|op| if let TraceOp::FreeUnknown { size } = op { *size } else { 0 }).sum::<u64>() + 7;
    let mut states = vec![State { live: BTreeMap::new(), unknown }];
    let mut trace = Story::cpu();
    trace.before(unknown);
    for (time_ns, op) in (1u64..).zip(ops) {
        let mut now = states.last().unwrap().clone();
        trace.at(time_ns).thread(1);
        match *op {
            TraceOp::Scope { thread, context, enter } => {
                let scope = SCOPES[context];
                if enter {
                    trace.thread(thread).enter(scope)
                } else {
                    trace.thread(thread).leave(scope)
                };
                continue;
            }
            TraceOp::Alloc { place, size } if !now.live.contains_key(&place) => {
                trace.alloc(place, size).address(0x1000 + 64 * place).on(LINE_7);
                now.live.insert(place, size);
            }
            TraceOp::Free { nth } if !now.live.is_empty() => {
                let place = *now.live.keys().nth(nth % now.live.len()).unwrap();
                trace.free(place);
                now.live.remove(&place);
            }
            TraceOp::FreeUnknown { size } => {
                trace.free_from_before(size);
                now.unknown -= size;
            }
            TraceOp::Alloc { .. } | TraceOp::Free { .. } => continue,
        }
        states.push(now);
    }
    let lost = (states.len() - 1).saturating_sub(kept);
    (trace.overwritten(lost).build(), states)
}

/// The rows of a layout: their blocks as (offset, size).
fn rows(trace: &serde_json::Value) -> BTreeMap<u64, Vec<(u64, u64)>> {
    let mut rows: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for name in events(trace, "M").filter(|event| event["name"] == "thread_name") {
        rows.insert(name["tid"].as_u64().unwrap(), Vec::new());
    }
    for (row, offset, size) in blocks(trace) {
        rows.get_mut(&row).unwrap().push((offset, size));
    }
    rows
}

/// For each pair of neighbouring shown marks, the highest state between them; the first if several are equal.
fn expected_rows<'a>(data: &SnapshotData, states: &'a [State]) -> Vec<&'a State> {
    let device = &data.devices[0];
    let first = states.len() - 1 - device.records.len();
    let mut starts: Vec<usize> = vec![0];
    for mark in &device.marks {
        starts.push(device.records.iter().filter(|record| record.time_ns < mark.time_ns).count());
    }
    starts.push(device.records.len());
    let parts = starts.windows(2).filter(|pair| pair[0] < pair[1]);
    parts
        .map(|pair| {
            let part = &states[first + pair[0]..=first + pair[1]];
            let highest = part.iter().map(State::total).max().unwrap();
            part.iter().find(|state| state.total() == highest).unwrap()
        })
        .collect()
}

fn sizes(state: &State) -> Vec<u64> {
    let mut sizes: Vec<u64> = state.live.values().copied().collect();
    sizes.sort_unstable();
    sizes
}

proptest! {
    #![proptest_config(crate::random::programs(300))]

    /// 1. A slice ends after it begins.
    /// 2. Slices of a thread nest.
    /// 3. Nothing stays open.
    #[test]
    fn slices_nest_whatever_the_order_of_scopes(ops in prop::collection::vec(op(), 0..60)) {
        let (data, _) = run(&ops, 1000);
        let trace = timeline_of(&data);
        let mut open: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        let mut last: BTreeMap<u64, f64> = BTreeMap::new();
        for event in trace["traceEvents"].as_array().unwrap() {
            let (Some(thread), Some(time)) = (event["tid"].as_u64(), event["ts"].as_f64()) else { continue };
            if event["ph"] != "B" && event["ph"] != "E" { continue }
            prop_assert!(*last.get(&thread).unwrap_or(&0.0) <= time, "a thread's slices are in order");
            last.insert(thread, time);
            if event["ph"] == "B" {
                open.entry(thread).or_default().push(time);
            } else {
                prop_assert!(open.get_mut(&thread).and_then(Vec::pop).is_some_and(|begin| begin <= time));
            }
        }
        prop_assert!(open.values().all(Vec::is_empty));
    }

    /// 1. Every total is the oracle's.
    /// 2. The largest is the peak unless it was overwritten.
    #[test]
    fn totals_are_those_of_the_oracle(ops in prop::collection::vec(op(), 0..60), kept in 1..60usize) {
        let (data, states) = run(&ops, kept);
        let trace = timeline_of(&data);
        let totals: Vec<u64> = events(&trace, "i").filter_map(|e| e["args"]["Total Allocated"].as_u64()).collect();
        let expected: Vec<u64> = states[states.len() - totals.len()..].iter().map(State::total).collect();
        prop_assert_eq!(totals, expected);
    }

    /// 1. A timeline that fits to the byte is written whole.
    /// 2. With one byte less, something is left out and reported.
    /// 3. The records that are shown have the same totals as in the whole timeline, and the curves end with the same
    ///    values.
    #[test]
    fn the_size_of_a_timeline_is_known_to_the_byte(ops in prop::collection::vec(op(), 0..60), kept in 1..60usize) {
        let (data, _) = run(&ops, kept);
        let write = |max_bytes| {
            let mut out = Vec::new();
            let options = ChromeTrace { max_bytes, ..ChromeTrace::default() };
            let left_out = options.write(&data, &mut out).unwrap();
            (left_out, out)
        };
        let (_, everything) = write(None);
        let whole = everything.len() as u64;
        let (left_out, out) = write(Some(whole));
        prop_assert!(left_out.is_nothing() && out == everything);
        let (left_out, out) = write(Some(whole - 1));
        prop_assert!(!left_out.is_nothing());
        prop_assert!(left_out.too_large || (out.len() as u64) < whole, "{left_out}");
        let read = |out: &[u8]| serde_json::from_slice::<serde_json::Value>(out).unwrap();
        let (everything, less) = (read(&everything), read(&out));
        prop_assert_eq!(&less["otherData"]["left_out"], &left_out.to_string());
        let memory = |trace| events(trace, "i").filter(|event| event["name"] == "[memory]").cloned().collect::<Vec<_>>();
        let all = memory(&everything);
        prop_assert!(memory(&less).iter().all(|event| all.contains(event)));
        let end = |trace| events(trace, "C").last().cloned();
        prop_assert_eq!(end(&less), end(&everything));
    }

    /// 1. Each row has the blocks of its step's highest moment.
    /// 2. They do not overlap.
    /// 3. A row has exactly the peak's blocks.
    #[test]
    fn rows_are_those_of_the_oracle(ops in prop::collection::vec(op(), 0..60), kept in 1..60usize) {
        let (data, states) = run(&ops, kept);
        let trace = layout_of(&data, &MemoryLayout::default());
        let mut rows = rows(&trace);
        let mut peak: Vec<u64> = data.devices[0].peak.blocks.iter().map(|block| block.size).collect();
        peak.sort_unstable();
        let mut seen = false;
        for blocks in rows.values_mut() {
            blocks.sort_unstable();
            prop_assert!(blocks.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{blocks:?}");
            blocks.sort_unstable_by_key(|block| block.1);
            seen |= blocks.iter().map(|block| block.1).eq(peak.iter().copied());
        }
        prop_assert!(seen, "a row has the peak's blocks");
        let extra = rows.remove(&1);
        if data.devices[0].records.is_empty() { return Ok(()) }
        prop_assert_eq!(extra.is_some(), data.devices[0].overwritten > 0 && !peak_is_in_log(&data));
        let made: Vec<Vec<u64>> = rows.values().map(|row| row.iter().map(|block| block.1).collect()).collect();
        let expected: Vec<Vec<u64>> = expected_rows(&data, &states).into_iter().map(sizes).collect();
        prop_assert_eq!(made, expected);
    }
}

proptest! {
    #![proptest_config(crate::random::programs(300))]

    /// 1. Each call has a row, and the only other row is that of the peak.
    /// 2. A row has exactly the peak's blocks.
    /// 3. The blocks of a row are those of some moment.
    #[test]
    fn rows_by_calls_are_moments_and_hold_the_peak(ops in prop::collection::vec(op(), 1..60), few: bool) {
        let (data, states) = run(&ops, 1000);
        let device = &data.devices[0];
        if device.records.is_empty() { return Ok(()) }
        let most = if few { 3 } else { 2000 };
        let options = MemoryLayout { steps: Steps::Operators, max_steps: most, ..Default::default() };
        let rows: Vec<Vec<u64>> = rows(&layout_of(&data, &options)).into_values().map(sorted).collect();
        let calls = crate::analysis::operators(&DeviceView::of(&data, device)).calls.len();
        prop_assert!(rows.len() <= most && (few || rows.len() == calls || rows.len() == calls + 1), "{rows:?}");
        prop_assert!(rows.contains(&sorted(device.peak.blocks.iter().map(|block| (0, block.size)).collect())));
        prop_assert!(rows.iter().all(|row| states.iter().any(|state| sizes(state) == *row)));
    }
}

fn sorted(row: Vec<(u64, u64)>) -> Vec<u64> {
    let mut sizes: Vec<u64> = row.into_iter().map(|(_, size)| size).collect();
    sizes.sort_unstable();
    sizes
}

fn peak_is_in_log(data: &SnapshotData) -> bool {
    let device = &data.devices[0];
    let made = |record: &Record| record.kind == RecordKind::Alloc && record.alloc_seq == device.peak.seq;
    device.peak.seq.is_some() && device.records.iter().any(made)
}
