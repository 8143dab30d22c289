//! Genuine snapshots, if MEMTRACE_PYTORCH_SNAPSHOTS names a folder of them. Compares memtrace's figures with those that
//! Python reads from the same files.

use std::path::Path;
use std::process::Command;

use super::tests::written_and_read;
use crate::snapshot::{RecordKind, SnapshotData};

/// Prints for each device: allocs, completed frees, their bytes, live blocks, their bytes, segments, their bytes,
/// segment events, the bytes at the peak. The peak is computed by playing the events backwards from the end.
const SCRIPT: &str = r"
import pickle, sys
snapshot = pickle.load(open(sys.argv[1], 'rb'))
for number, trace in enumerate(snapshot['device_traces']):
    segments = [s for s in snapshot['segments'] if s['device'] == number]
    blocks = [b for s in segments for b in s['blocks'] if b['state'] != 'inactive']
    allocs = [e['size'] for e in trace if e['action'] == 'alloc']
    frees = [e['size'] for e in trace if e['action'] == 'free_completed']
    live = sum(b['requested_size'] for b in blocks)
    now, peak = live, live
    for event in reversed(trace):
        if event['action'] == 'alloc': now -= event['size']
        if event['action'] == 'free_completed': now += event['size']
        peak = max(peak, now)
    events = sum(e['action'].startswith('segment_') for e in trace)
    print(number, len(allocs), len(frees), sum(allocs), sum(frees), len(blocks), live,
          len(segments), sum(s['total_size'] for s in segments), events, peak)
";

/// The same figures of a recording.
fn figures(data: &SnapshotData) -> String {
    let line = |device: &crate::snapshot::DeviceSnapshot| {
        let crate::snapshot::Device::Cuda(number) = device.device else { panic!("{}", device.device) };
        let of = |kind| device.records.iter().filter(move |record| record.kind == kind);
        let sum = |kind| of(kind).map(|record| record.size).sum::<u64>();
        let (allocs, frees) = (of(RecordKind::Alloc).count(), of(RecordKind::Free).count());
        let segments: u64 = device.segments.iter().map(|segment| segment.size).sum();
        let events = device.segment_records.iter().filter(|segment| segment.stack != crate::snapshot::StackId::NONE);
        format!(
            "{number} {allocs} {frees} {} {} {} {} {} {segments} {} {}\n",
            sum(RecordKind::Alloc),
            sum(RecordKind::Free),
            device.live.len(),
            device.live.iter().map(|block| block.size).sum::<u64>(),
            device.segments.len(),
            events.count(),
            device.peak.bytes
        )
    };
    data.devices.iter().map(line).collect()
}

fn check(file: &Path) {
    let data = crate::open(file).unwrap();
    let python = Command::new("python3").args(["-c", SCRIPT]).arg(file).output().unwrap();
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    assert_eq!(figures(&data), String::from_utf8(python.stdout).unwrap(), "{}", file.display());
    let again = written_and_read(&data);
    assert!(again.devices == data.devices, "{}: devices differ when written and read", file.display());
    assert!(again.stacks == data.stacks, "{}: stacks differ when written and read", file.display());
    assert_eq!(again.contexts, data.contexts);
}

#[test]
fn genuine_snapshots_have_the_figures_that_python_reads_and_stay_the_same_when_written() {
    let Some(folder) = std::env::var_os("MEMTRACE_PYTORCH_SNAPSHOTS") else {
        return eprintln!("NOT RUN: MEMTRACE_PYTORCH_SNAPSHOTS names no folder");
    };
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let pickles: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|extension| extension == "pickle")).collect();
    assert!(!pickles.is_empty());
    pickles.iter().for_each(|file| check(file));
}
