//! A GPU whose memory is the host's.

use cudarc::driver::CudaContext;
use memtrace::analysis::{self, BalanceItem};
use memtrace::export::{Capture, Export, Text};
use memtrace::report::ReportOptions;
use memtrace::snapshot::{MemoryKind, UnifiedMemory};
use memtrace::{Device, DeviceView, Snapshot};

use super::raw;
use super::schema::checked_json;
use super::support::on_gpu;

const MIB: usize = 1 << 20;
const TIB: u64 = 1 << 40;

/// The driver calls nothing free, whatever the host has.
const INTEGRATED: [(&str, &str); 4] = [
    ("MEMTRACE_CUSIM_INTEGRATED", "1"),
    ("MEMTRACE_CUSIM_MEMORY", "1TiB"),
    ("MEMTRACE_CUSIM_PAGE_CACHE", "1TiB"),
    ("MEMTRACE_CUSIM_CONTEXT", "256MiB"),
];

fn unified(snapshot: &Snapshot) -> Option<UnifiedMemory> {
    snapshot.device(Device::Cuda(0)).unwrap().memory.unwrap().unified
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn the_page_cache_and_the_process_have_rows_and_what_is_available_is_said() {
    on_gpu(&INTEGRATED, || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        context.bind_to_thread().unwrap();
        raw::alloc(10 * MIB).unwrap();
        let before = resident();
        let snapshot = session.snapshot();
        let UnifiedMemory { system, process } = unified(&snapshot).unwrap();
        let (system, process) = (system.unwrap(), process.unwrap());
        assert!(process.files > 0 && process.own() > 0 && process.resident < system.total, "{process:?}");
        assert!(process.resident.abs_diff(before) < before / 2, "{process:?} {before}");
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        let balance = analysis::balance(&DeviceView::of(&snapshot, gpu)).unwrap();
        let rows: Vec<(BalanceItem, i64)> = balance.rows.iter().map(|row| (row.item.clone(), row.bytes)).collect();
        let rest = TIB - (10 << 20) - system.available - process.own();
        let expected = [
            (BalanceItem::Live(MemoryKind::Classic), 10 << 20),
            (BalanceItem::PageCache, system.available as i64),
            (BalanceItem::Process, process.own() as i64),
            (BalanceItem::Unexplained, rest as i64),
        ];
        assert_eq!((balance.used, balance.available, rows), (TIB, Some(system.available), expected.to_vec()));
        let report = ReportOptions { device: Some(Device::Cuda(0)), ..ReportOptions::default() };
        let text = Text { report, ..Text::default() }.render(&snapshot).unwrap();
        checked_json(&snapshot);
        eprintln!("{text}");
        for expected in ["are available; the driver calls 0 B free", "page cache that Linux gives back: files"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let mut capture = Vec::new();
        Capture::default().write(&snapshot, &mut capture).unwrap();
        let path = std::env::temp_dir().join(format!("integrated-{}.memtrace", std::process::id()));
        std::fs::write(&path, capture).unwrap();
        assert_eq!(memtrace::open(&path).unwrap().devices[1].memory, gpu.memory);
        std::fs::remove_file(path).unwrap();
    });
}

#[test]
fn a_gpu_with_memory_of_its_own_has_no_host() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        context.bind_to_thread().unwrap();
        raw::alloc(MIB).unwrap();
        assert_eq!(unified(&session.snapshot()), None);
    });
}

/// What the driver said and what the host said belong together.
#[test]
fn once_no_context_is_left_the_hosts_numbers_are_those_from_before() {
    on_gpu(&INTEGRATED, || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        drop(stream.alloc_zeros::<u8>(MIB).unwrap());
        drop(stream);
        drop(context);
        let before = resident();
        let touched = std::hint::black_box(vec![1u8; 256 * MIB]);
        let read = unified(&session.snapshot()).unwrap().process.unwrap().resident;
        assert!(read < before + (64 << 20) && read > before / 2, "{read} {before}");
        drop(touched);
    });
}

/// The end of the session writes it, too.
#[test]
fn a_streamed_capture_has_the_hosts_memory() {
    on_gpu(&INTEGRATED, || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.memtrace");
        let session = memtrace::builder().stream(path.display().to_string()).start().unwrap();
        let context = CudaContext::new(0).unwrap();
        context.bind_to_thread().unwrap();
        raw::alloc(MIB).unwrap();
        drop(session);
        let data = memtrace::open(&path).unwrap();
        let gpu = data.devices.iter().find(|device| device.device == Device::Cuda(0)).unwrap();
        assert!(gpu.memory.unwrap().unified.unwrap().system.is_some());
    });
}
