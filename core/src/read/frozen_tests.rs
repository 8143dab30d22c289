//! Captures in `tests/frozen` that version 0.1 wrote and that are never written again. Reading them must give the
//! values of `numbers.txt` in the same folder.
//!
//! Another version gets a folder of its own: `MEMTRACE_FREEZE=FOLDER cargo test -p memtrace-core --lib freeze --
//! --ignored` adds names to the captures there, and writes their numbers.

use std::fs;
use std::path::{Path, PathBuf};

use crate::analysis::Key;
use crate::read::{open, store_names};
use crate::recording::DeviceView;
use crate::snapshot::{Block, DeviceSnapshot, SnapshotData};

/// Streams: one with names, one of a killed program without names, one of a program with a GPU, and one in parts.
const CAPTURES: [&str; 4] = ["heap.memtrace", "killed.memtrace", "cuda.memtrace", "parts.memtrace"];
const NAMED: [&str; 2] = ["heap.memtrace", "cuda.memtrace"];

fn frozen() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/frozen/0.1")
}

/// The values that are read from a capture, one per line.
fn numbers(name: &str, data: &SnapshotData) -> String {
    let mut text = format!("{name}: {}, cut off: {}\n", data.process.program, data.health.cut_off);
    for device in &data.devices {
        text += &of_device(device);
        let view = DeviceView::of(data, device);
        for row in view.by(Key::Line).rows.iter().filter(|_| NAMED.contains(&name)) {
            text += &format!("    {} bytes of {} blocks at {}\n", row.bytes, row.count.unwrap_or(0), row.label);
        }
    }
    text
}

fn of_device(device: &DeviceSnapshot) -> String {
    let sum = |blocks: &[Block]| blocks.iter().map(|block| block.size).sum::<u64>();
    let (peak, stats) = (&device.peak, &device.stats);
    format!(
        "  {}: peak {} of {} blocks, live {} of {} blocks\n    {} records after {} others, {} gaps\n    {} allocations of {} bytes, {} frees of {}\n",
        device.device,
        peak.bytes,
        peak.blocks.len(),
        sum(&device.live),
        device.live.len(),
        device.records.len(),
        device.overwritten,
        device.gaps.len(),
        stats.allocations.allocated,
        stats.allocated_bytes.allocated,
        stats.allocations.freed,
        stats.allocated_bytes.freed,
    )
}

fn all_numbers(folder: &Path) -> String {
    CAPTURES.iter().map(|name| numbers(name, &open(folder.join(name)).unwrap())).collect()
}

#[test]
fn captures_of_0_1_say_what_they_said() {
    let written = fs::read_to_string(frozen().join("numbers.txt")).unwrap();
    assert_eq!(all_numbers(&frozen()), written);
}

#[test]
#[ignore = "freezes captures of another version, when asked to"]
fn freeze() {
    let folder = PathBuf::from(std::env::var_os("MEMTRACE_FREEZE").unwrap());
    for path in NAMED.map(|name| folder.join(name)) {
        let pid = open(&path).unwrap().process.pid;
        store_names(&path, pid, |_, _| {}).unwrap();
    }
    fs::write(folder.join("numbers.txt"), all_numbers(&folder)).unwrap();
}
