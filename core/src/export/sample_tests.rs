//! Sampled recordings in every format: they are marked as estimates, and their sums agree.

use serde_json::Value;

use crate::analysis::{self, Key, operators};
#[cfg(feature = "flamegraph")]
use crate::export::golden_tests::check;
use crate::export::{
    ChromeTrace, Dhat, Export, ExportOperators, Flamegraph, Folded, Json, MemoryLayout, OperatorsJson, OperatorsSvg,
    Pickle, Pprof, Text, TimelineSvg, folded, parse_operators,
};
use crate::recording::DeviceView;
use crate::snapshot::testing::{a_sample, two_lines_and_a_temporary};
use crate::snapshot::{Device, SnapshotData};

fn written<T>(write: impl FnOnce(&mut Vec<u8>) -> Result<T, crate::error::Error>) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    out
}

fn as_json(data: &SnapshotData) -> Vec<u8> {
    written(|out| Json::default().write(data, out))
}

#[test]
fn the_reports_of_a_sample_match_their_goldens() {
    let data = a_sample();
    check("sampled.txt", Text { width: 100, ..Default::default() }.render(&data).unwrap().as_bytes());
    let report = String::from_utf8(as_json(&data)).unwrap();
    check("sampled.json", report.replace(env!("CARGO_PKG_VERSION"), "VERSION").as_bytes());
}

/// The output of each format that can mark estimates.
fn formats(data: &SnapshotData) -> Vec<(&'static str, Vec<u8>)> {
    let series = operators(&DeviceView::of(data, data.device(Device::Cpu).unwrap()));
    let series = &series;
    vec![
        ("estimates from a sample", written(|out| ChromeTrace::default().write(data, out))),
        ("estimates from a sample", written(|out| Pprof::default().write(data, out))),
        ("estimates from a sample", written(|out| Dhat::default().write(data, out))),
        ("sample of one in 1 KiB", written(|out| MemoryLayout::default().write(data, out))),
        ("sample of one in 1 KiB", written(|out| Pickle::default().write(data, out))),
        ("\"sample_interval\":1024", written(|out| OperatorsJson::default().write_operators(series, out))),
        ("estimates from a sample", series.to_string().into_bytes()),
        #[cfg(feature = "flamegraph")]
        ("estimates from a sample", written(|out| Flamegraph::default().write(data, out))),
        (", estimated", written(|out| TimelineSvg::default().write(data, out))),
        (", estimated", written(|out| OperatorsSvg.write_operators(series, out))),
    ]
}

#[test]
fn every_format_that_can_says_that_its_figures_are_estimates_and_of_which_sample() {
    let (sampled, whole) = (formats(&a_sample()), formats(&two_lines_and_a_temporary()));
    for ((words, sampled), (_, whole)) in sampled.iter().zip(&whole) {
        let [sampled, whole] = [sampled, whole].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(sampled.contains(words), "{words}: {sampled}");
        assert!(!whole.contains(words), "{words}: {whole}");
    }
}

#[test]
fn a_series_of_estimates_is_read_as_one() {
    let data = a_sample();
    let series = operators(&DeviceView::of(&data, &data.devices[0]));
    let json = written(|out| OperatorsJson::default().write_operators(&series, out));
    assert_eq!(parse_operators(&json).unwrap(), series);
    assert_eq!(series.sample_interval, Some(1024));
    let (exact, sampled, estimate) = (&series.calls[0], &series.calls[1], data.devices[0].sampling.bytes(1000));
    assert_eq!((exact.before, exact.peak, exact.added, exact.allocations), (1024, 3024, 2000, 1));
    assert_eq!((sampled.before, sampled.peak, sampled.allocations), (3024, 3024 + estimate, 2));
}

#[test]
fn what_a_sample_stands_for_adds_up_in_every_table_and_curve() {
    let data = a_sample();
    let device = &data.devices[0];
    let folded = folded::lines(&DeviceView::of(&data, device).at_peak(), &Folded::default());
    assert_eq!(folded.values().sum::<u64>(), device.peak.total());
    let report: Value = serde_json::from_slice(&as_json(&data)).unwrap();
    let report = &report["devices"][0];
    let tables = report.as_object().unwrap().iter().filter(|(name, _)| name.contains("_by_"));
    for (name, table) in tables {
        let rows = table["rows"].as_array().unwrap().iter().map(|row| row["bytes"].as_u64().unwrap());
        let live = &report["stats"]["allocated_bytes.all.current"];
        let total = if name.starts_with("live") { live } else { &report["peak"]["total_bytes"] };
        assert_eq!(Some(rows.sum::<u64>()), total.as_u64(), "{name}");
    }
    let counted = device.stats.counted.unwrap();
    assert_eq!(report["peak"]["total_bytes"], counted.at_peak);
    assert_eq!(report["live_by_line"]["total_bytes"], counted.now);
    let scopes: u64 = analysis::scopes(&DeviceView::of(&data, device)).iter().map(|scope| scope.at_peak).sum();
    let of_scopes = DeviceView::of(&data, device).by(Key::Scope).clone();
    assert_eq!(Some(scopes), of_scopes.rows.iter().find(|row| row.label == "forward").map(|row| row.bytes));
    let trace: Value = serde_json::from_slice(&written(|out| ChromeTrace::default().write(&data, out))).unwrap();
    let totals = trace["traceEvents"].as_array().unwrap().iter();
    let mut totals = totals.filter_map(|event| event["args"]["Total Allocated"].as_u64());
    // Curves use weights by size.
    assert_eq!(totals.next_back(), Some(device.live_by_sizes()));
}

#[test]
fn the_row_of_the_counted_peak_holds_its_blocks_wherever_the_estimate_is_highest() {
    let mut data = a_sample();
    let peak = &mut data.devices[0].peak;
    (peak.seq, peak.time_ns, peak.bytes) = (std::num::NonZeroU64::new(2), 2_000, 4800);
    peak.blocks.truncate(2);
    let options = MemoryLayout { max_steps: 1, ..Default::default() };
    let text = String::from_utf8(written(|out| options.write(&data, out))).unwrap();
    let rows: Value = serde_json::from_str(&text).unwrap();
    let blocks = rows["traceEvents"].as_array().unwrap().iter().filter_map(|event| event["dur"].as_u64());
    assert_eq!(blocks.sum::<u64>(), 3000, "{text}");
    assert!(text.contains(": 4.688 KiB (peak)"), "{text}");
}

/// Formats that show the blocks' places in memory show their real sizes.
#[test]
fn pickles_and_layouts_have_real_sizes() {
    let sizes = |data: &SnapshotData| {
        let rows: Value = serde_json::from_slice(&written(|out| MemoryLayout::default().write(data, out))).unwrap();
        let events = rows["traceEvents"].as_array().unwrap().iter();
        events.filter_map(|event| event["dur"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&a_sample()), sizes(&two_lines_and_a_temporary()));
}
