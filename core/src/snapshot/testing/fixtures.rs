//! Recordings shared by many tests.

use super::super::{
    Category, ContextId, ContextNode, Counted, Health, Launcher, LoadedObject, Process, Settings, SnapshotData, Stacks,
    Stat, Thread, ThreadId,
};
use super::stacks::{LINE_7, LINE_9, WORKER, of_net};
use super::story::Story;

/// An empty recording.
pub(crate) fn empty() -> SnapshotData {
    SnapshotData {
        process: Process::default(),
        settings: Settings::default(),
        devices: Vec::new(),
        stacks: Stacks { starts: vec![0], ..Stacks::default() },
        contexts: vec![ContextNode { parent: ContextId::ROOT, name: String::new(), module: false }],
        objects: Vec::new(),
        health: Health::default(),
        gpu_work: None,
    }
}

/// The program of all stories, without any device.
pub(super) fn net() -> SnapshotData {
    let process = Process {
        program: "net".into(),
        host: "box".into(),
        pid: 42,
        rank: None,
        launcher: Launcher::default(),
        working_dir: "/home/u/net".into(),
        started_unix_us: 1_790_000_000_000_000,
        duration_ns: 2_000_000,
        threads: vec![Thread { number: ThreadId(1), os_id: 42, name: "net".into() }],
        memory: None,
        mappings: None,
    };
    let module = LoadedObject {
        path: Some("/home/u/net/net".into()),
        build_id: vec![0xab, 1],
        base: 0x100,
        range: 0x100..0x900,
    };
    SnapshotData { process, stacks: of_net(), objects: vec![module], ..empty() }
}

/// Two blocks of 2,000 and 1,000 bytes from line 7 in scope `forward`, one of 500 from a worker without a user line,
/// and a temporary of 64 from line 9. In addition, 1,024 bytes from before the recording and 128 below the threshold.
/// The peak is reached with the third block. The second block has a name and is freed later.
pub(crate) fn two_lines_and_a_temporary() -> SnapshotData {
    two_lines().below_threshold(128).build()
}

/// The story of [`two_lines_and_a_temporary`], without the blocks below the threshold.
fn two_lines() -> Story {
    let mut trace = Story::cpu();
    trace.before(1024);
    trace.at(900).enter("forward");
    trace.at(1_000).alloc("input", 2000).on(LINE_7);
    trace.at(2_000).alloc("weights", 1000).on(LINE_7).named("weights f32[250]", Category::Parameter);
    trace.at(2_500).leave("forward");
    trace.at(3_000).alloc("worker's", 500).on(WORKER);
    trace.at(4_000).free("weights");
    trace.at(5_000).alloc("temporary", 64).on(LINE_9);
    trace.at(6_000).free("temporary");
    trace
}

/// The same story with sampling of blocks below 1 KiB.
pub(crate) fn a_sample() -> SnapshotData {
    let mut data = two_lines().sampled(1024).build();
    let device = &mut data.devices[0];
    let counted = Counted { now: 4200, at_peak: 5300, before: 70 };
    // Counted in small blocks: 2,276 bytes at the peak and 1,176 now. The estimates are 2,898 and 1,294.
    device.peak.bytes = counted.at_peak;
    let bytes = Stat { current: counted.now, peak: counted.at_peak, ..device.stats.allocated_bytes };
    let stats = &mut device.stats;
    (stats.allocated_bytes, stats.active_bytes, stats.reserved_bytes) = (bytes, bytes, bytes);
    stats.counted = Some(counted);
    data
}
