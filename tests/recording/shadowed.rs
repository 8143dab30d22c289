//! A tensor that is shadowed lives to the end of its scope.
//!
//! `cargo test --test recording shadowed -- --nocapture`

use candle_core::{DType, Device, Result, Tensor};
use memtrace::snapshot::DeviceSnapshot;
use memtrace::{DeviceView, Snapshot};

use crate::child::in_child;

const WIDTH: usize = 512;
const SQUARE: u64 = (WIDTH * WIDTH * 4) as u64;

/// Runs a program and takes a snapshot; prints the report.
fn recorded(title: &str, program: impl FnOnce() -> Result<Tensor>) -> Snapshot {
    let session = memtrace::start().unwrap();
    let _kept = program().unwrap();
    let snapshot = session.snapshot();
    println!("\n=== {title} ===\n{}", snapshot.report());
    snapshot
}

fn cpu(snapshot: &Snapshot) -> &DeviceSnapshot {
    snapshot.device(memtrace::Device::Cpu).unwrap()
}

fn shadowing(size: usize) -> Result<Tensor> {
    let x = Tensor::ones((size, size), DType::F32, &Device::Cpu)?;
    let x = x.exp()?;
    let x = x.relu()?;
    x.sum_all()
}

fn replacing(size: usize) -> Result<Tensor> {
    let mut x = Tensor::ones((size, size), DType::F32, &Device::Cpu)?;
    x = x.exp()?;
    x = x.relu()?;
    x.sum_all()
}

#[test]
fn a_shadowed_tensor_is_live_to_the_end_of_its_scope() {
    // Leftovers of other code would make it a smaller part of the peak.
    let ended = in_child(&[], || {
        let kept = recorded("let x = f(&x)", || shadowing(WIDTH));
        let cured = recorded("x = f(&x)", || replacing(WIDTH));
        let found = DeviceView::of(&kept, cpu(&kept)).live_twice().to_vec();
        assert_eq!(found.len(), 1, "{found:?}");
        let row = &found[0];
        assert_eq!((row.count, row.size, row.older), (3, SQUARE, 2 * SQUARE));
        assert_eq!(row.lines.len(), 3);
        assert!(
            row.lines[0].starts_with("tests/recording/shadowed.rs:") && row.lines[0].ends_with("shadowing)"),
            "{row:?}"
        );
        let peak = |snapshot: &Snapshot| cpu(snapshot).peak.bytes;
        let squares =
            |snapshot: &Snapshot| cpu(snapshot).peak.blocks.iter().filter(|block| block.size == SQUARE).count();
        assert_eq!([squares(&kept), squares(&cured)], [3, 2]);
        assert_eq!(row.peak_without, Some(peak(&kept) - SQUARE), "what it says comes true");
        assert_eq!(DeviceView::of(&cured, cpu(&cured)).live_twice(), []);
        let findings = |snapshot: &Snapshot| memtrace::report::findings(&DeviceView::of(snapshot, cpu(snapshot)));
        assert_eq!(findings(&kept).iter().map(|finding| finding.kind.word()).collect::<Vec<_>>(), ["live_twice"]);
        assert_eq!(findings(&cured), []);
        let report = kept.report().to_string();
        let section = report.split("\nLive twice\n").nth(1).unwrap_or_else(|| panic!("{report}"));
        let older_and_peak_then = format!("2.000 MiB  {}", memtrace::Bytes(cpu(&kept).peak.total() - SQUARE));
        assert!(
            section.contains(&older_and_peak_then) && section.contains(&format!("then {}", row.lines[2])),
            "{section}"
        );
        let dir = tempfile::tempdir().unwrap();
        kept.write(dir.path().join("report.json")).unwrap();
        let json = std::fs::read(dir.path().join("report.json")).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["devices"][0]["live_twice"][0]["peak_without_bytes"], peak(&kept) - SQUARE);
    });
    print!("{}", ended.out);
}
