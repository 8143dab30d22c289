//! Gauges of the facade `metrics`.

use std::collections::BTreeMap;

use memtrace::metrics::{LIVE_BYTES, PEAK_BYTES, SCOPE_LIVE_BYTES, SCOPE_PEAK_BYTES, record_devices, record_scopes};
use memtrace::scope;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::support::{MIB, Raw, alone, cpu, record_large};

/// The gauges that `set` sets, by name and labels.
fn gauges(set: impl FnOnce()) -> BTreeMap<(String, Vec<String>), u64> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, set);
    let rows = snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| {
        let (_, key) = key.into_parts();
        let DebugValue::Gauge(value) = value else { panic!("{key} is not a gauge") };
        let labels = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        ((key.name().to_owned(), labels), value.0 as u64)
    });
    rows.collect()
}

fn of(name: &str, labels: &[&str]) -> (String, Vec<String>) {
    (name.to_owned(), labels.iter().map(|&label| label.to_owned()).collect())
}

#[test]
fn gauges_are_the_live_bytes_and_peaks_of_the_report() {
    let _alone = alone();
    let session = record_large();
    let (kept, dropped) = scope("request", || (Raw::new(MIB), scope("decode", || Raw::new(2 * MIB))));
    drop(dropped);
    let set = gauges(|| {
        record_devices();
        record_scopes(1);
    });
    let snapshot = session.snapshot();
    let device = cpu(&snapshot);
    assert_eq!(set[&of(PEAK_BYTES, &["device=cpu"])], device.peak.total());
    // Small blocks of other threads may come and go in between.
    let live = device.stats.live();
    assert!(set[&of(LIVE_BYTES, &["device=cpu"])].abs_diff(live) < MIB as u64 / 2, "{set:?}, not {live}");
    let request = ["device=cpu", "scope=request"];
    assert_eq!(set[&of(SCOPE_LIVE_BYTES, &request)], MIB as u64);
    assert_eq!(set[&of(SCOPE_PEAK_BYTES, &request)], 3 * MIB as u64);
    assert!(!set.keys().any(|(_, labels)| labels.iter().any(|label| label.contains("decode"))), "{set:?}");
    let deeper = gauges(|| record_scopes(2));
    assert_eq!(deeper[&of(SCOPE_PEAK_BYTES, &["device=cpu", "scope=request > decode"])], 2 * MIB as u64);
    drop(kept);
}

#[test]
fn without_a_session_no_gauge_is_set() {
    let _alone = alone();
    let set = gauges(|| {
        record_devices();
        record_scopes(9);
    });
    assert!(set.is_empty(), "{set:?}");
}
