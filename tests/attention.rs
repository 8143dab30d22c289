//! The example attention under memtrace, beside the PyTorch snapshot of the script that it is the port of. The snapshot is
//! `silmont2000-mem_snapshot.pickle` in the folder that MEMTRACE_PYTORCH_SNAPSHOTS names.

use std::path::PathBuf;

use memtrace::DeviceView;
use memtrace::analysis::{DiffRow, OperatorPairs};

#[path = "support/child.rs"]
mod child;
#[path = "../examples/attention/model.rs"]
mod model;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// What the snapshot holds at its peak, counted by hand from the entries of its log. They add up to the peak but for the 4 bytes
/// of the first gradient (`ones_like`), whose partner in candle is smaller than any block that the port records.
const BY_HAND: [(&str, u64); 7] = [
    ("backward of div", 4 * (512 << 20)),
    ("backward of matmul", (512 << 20) + (2 << 20) + 8_519_680),
    ("exp", 512 << 20),
    ("matmul", (2 << 20) + 8_519_680),
    ("randn", 3 * (2 << 20)),
    ("max", 256 << 10),
    ("sum", (128 << 10) + 4),
];
const PEAK: u64 = 3_249_143_816;
/// The variable with the snapshot, for the child.
const PICKLE: &str = "SNAPSHOT_OF_THE_SCRIPT";

fn is_of(row: &&DiffRow, title: &str) -> bool {
    row.label == title || row.label.strip_prefix(title).is_some_and(|rest| rest.starts_with(": "))
}

#[test]
fn the_port_has_a_partner_for_nearly_all_that_the_script_held_at_its_peak() {
    // The child has no variables of memtrace.
    let given = std::env::var_os(PICKLE).or_else(|| std::env::var_os("MEMTRACE_PYTORCH_SNAPSHOTS"));
    let Some(given) = given.map(PathBuf::from) else {
        return eprintln!("NOT RUN: MEMTRACE_PYTORCH_SNAPSHOTS names no folder");
    };
    let pickle = if given.is_dir() { given.join("silmont2000-mem_snapshot.pickle") } else { given };
    child::in_child(&[("RAYON_NUM_THREADS", "1"), (PICKLE, pickle.to_str().unwrap())], || {
        let script = memtrace::open(&pickle).unwrap();
        let session = memtrace::builder().min_size("256").start().unwrap();
        let shape = model::Shape { sequence: 256, ..model::Shape::default() };
        model::forward_and_backward(shape, &candle_core::Device::Cpu).unwrap();
        let port = session.snapshot();
        let cpu = port.device(memtrace::Device::Cpu).unwrap();
        let (script, port) = (DeviceView::of(&script, &script.devices[0]), DeviceView::of(&port, cpu));
        let pairs = OperatorPairs::of(&script.at_peak(), &port.at_peak()).unwrap();

        let rows = &pairs.at_peak.rows;
        for (title, bytes) in BY_HAND {
            let row = rows.iter().find(|row| is_of(row, title)).unwrap_or_else(|| panic!("no {title}: {rows:#?}"));
            assert_eq!(row.before, bytes, "{title}");
        }
        assert_eq!(pairs.at_peak.before + pairs.unpaired.before, PEAK);
        assert_eq!(pairs.at_peak.before, BY_HAND.iter().map(|(_, bytes)| bytes).sum::<u64>());
        assert!(pairs.at_peak.before >= PEAK / 100 * 80);
        assert!(pairs.at_peak.after >= cpu.peak.total() / 100 * 80, "{:#?}", pairs.unpaired);
        // PyTorch frees the scores before the backward pass; candle keeps the results of all operators.
        assert_eq!(pairs.kept.before, 2 * (512 << 20) + (256 << 10) + (128 << 10));
        let kept = 4 * shape.batch * shape.sequence * (5 * shape.sequence + shape.dim + 2);
        assert_eq!(pairs.kept.after, kept as u64, "{:#?}", pairs.kept.rows);
    });
}
