//! Sections on a device as a whole: balance, segments, and time in driver calls.

use super::{Cell, Section};
use crate::analysis::{
    Balance, BalanceItem, BalanceRow, Churn, Fragmentation, NeedRow, TimeRow, balance, churn, fragmentation,
    fragmentation_by_pool, line_label, time_by_line, time_by_scope, time_in_driver,
};
use crate::recording::DeviceView;
use crate::snapshot::{Device, MemoryKind, StackId, UnifiedMemory};
use crate::units::{Bytes, grouped};

pub(super) const KEYS: [&str; 5] = ["balance", "unexplained", "segments", "driver_time", "driver_time_by_scope"];

const ROWS: usize = 5;

/// The sections of a CUDA device; none for other memory.
pub(super) fn sections(device: &DeviceView<'_>) -> Vec<Section> {
    let Device::Cuda(_) = device.device else { return Vec::new() };
    let mut sections = balance(device).map_or_else(Vec::new, |balance| balance_sections(device, &balance));
    sections.extend(segments_section(device));
    sections.extend(time_sections(device));
    sections
}

fn balance_sections(device: &DeviceView<'_>, balance: &Balance) -> Vec<Section> {
    [balance_section(device, balance)].into_iter().chain(unexplained_section(device, balance)).collect()
}

/// What may be in the memory that the balance does not explain.
fn unexplained_section(device: &DeviceView<'_>, balance: &Balance) -> Option<Section> {
    let bytes = balance.rows.iter().find(|row| row.item == BalanceItem::Unexplained)?.bytes;
    let title = format!("What may be in the unexplained {}", Bytes(u64::try_from(bytes).unwrap_or(0)));
    let mut section = Section::of_columns("unexplained", title, &["Low", "High", "What"]);
    let cells = |part: &NeedRow| {
        vec![Cell::Sum(part.low), Cell::Sum(part.high), Cell::Text(format!("{}: {}", part.what, part.known_by))]
    };
    section.rows = balance.unexplained.iter().map(cells).collect();
    section.notes = largest_kernel(device).into_iter().collect();
    (!section.rows.is_empty()).then_some(section)
}

/// A sentence on the kernel that needs the largest stacks, unless the context's stacks are larger anyway.
fn largest_kernel(device: &DeviceView<'_>) -> Option<String> {
    const DEFAULT: u64 = 1 << 10;
    let work = device.data().gpu_work.as_ref()?;
    let stack = device.memory?.threads?.stack;
    let local = work.most_local().filter(|local| local.bytes > DEFAULT && local.bytes >= stack)?;
    let line = || format!(", launched at {}", line_label(device.data(), local.stack.0));
    let at = if local.stack == StackId::NONE { String::new() } else { line() };
    Some(format!(
        "A thread of `{}` needs {} bytes of local memory{at}. A launch of it makes the stacks of all threads that large.",
        work.kernel(local.kernel),
        grouped(local.bytes)
    ))
}

fn balance_section(device: &DeviceView<'_>, balance: &Balance) -> Section {
    let (used, total) = (Bytes(balance.used), Bytes(balance.total.unwrap_or(0)));
    let heading = format!("Where the device's memory is: {used} of {total} used, other processes included");
    let has_parts = !balance.unexplained.is_empty();
    let mut section = balance_table(balance, heading, |row| match row.item {
        BalanceItem::Unexplained if has_parts => Some("the section `unexplained` says what may be in it."),
        _ => sentence(row),
    });
    section.about =
        device.memory.and_then(|memory| memory.unified).map_or_else(Vec::new, |unified| of_host(balance, unified));
    section
}

/// How much of an integrated device's memory programs can still get, which the driver does not report.
fn of_host(balance: &Balance, unified: UnifiedMemory) -> Vec<String> {
    let heading = "The GPU is integrated: its memory is the host's.".to_owned();
    let free = balance.total.unwrap_or(0).saturating_sub(balance.used);
    let available = unified.system.map_or("How much of it is available was not read.".to_owned(), |system| {
        let (available, total) = (Bytes(system.available), Bytes(system.total));
        format!("{available} of its {total} are available; the driver calls {} free.", Bytes(free))
    });
    vec![heading, available]
}

/// A table of the rows and their sum, with a sentence below it for each row that has one.
pub(super) fn balance_table(
    balance: &Balance,
    heading: String,
    sentence: impl Fn(&BalanceRow) -> Option<&'static str>,
) -> Section {
    let mut section = Section::of_columns("balance", heading, &["Mem", "Bytes", "What"]);
    let all = ("= all that is used".to_owned(), i64::try_from(balance.used).unwrap_or(i64::MAX));
    for (name, bytes) in balance.rows.iter().map(|row| (name(&row.item), row.bytes)).chain([all]) {
        section.rows.push(vec![Cell::Signed(bytes), Cell::Exactly(bytes), Cell::Text(name)]);
    }
    let told = |row: &BalanceRow| Some(format!("{}: {}", name(&row.item), sentence(row)?));
    section.notes = balance.rows.iter().filter_map(told).collect();
    section
}

pub(crate) fn name(item: &BalanceItem) -> String {
    match item {
        BalanceItem::Live(MemoryKind::Heap) => "live blocks".to_owned(),
        BalanceItem::Live(kind) => format!("live, {}", kind_in_words(*kind)),
        BalanceItem::Library(name) => format!("live, taken by {name}"),
        BalanceItem::Before => "from before the recording".to_owned(),
        BalanceItem::Rounding => "rounding".to_owned(),
        BalanceItem::NotSeen => "in pools, not seen".to_owned(),
        BalanceItem::PoolSlack => "reserved by pools, unused".to_owned(),
        BalanceItem::GraphSlack => "kept for graphs, unused".to_owned(),
        BalanceItem::ClassicSlack => "unused rest of cuMemAlloc's segments".to_owned(),
        BalanceItem::PageCache => "page cache that Linux gives back".to_owned(),
        BalanceItem::Process => "this process's own resident memory".to_owned(),
        BalanceItem::Unexplained => "unexplained".to_owned(),
        BalanceItem::Smaller => "live blocks below the threshold".to_owned(),
        BalanceItem::Untouched => "live, but not in physical memory".to_owned(),
        BalanceItem::Kept => "kept by the allocator".to_owned(),
        BalanceItem::Files => "mapped files".to_owned(),
        BalanceItem::Code => "the program and its libraries".to_owned(),
        BalanceItem::Stacks => "stacks of threads".to_owned(),
        BalanceItem::Own => "memtrace itself".to_owned(),
        BalanceItem::Anonymous => "mapped by the program, without a file".to_owned(),
    }
}

fn kind_in_words(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Pool => "from pools",
        MemoryKind::Classic => "from cuMemAlloc",
        MemoryKind::Virtual => "mapped by hand",
        MemoryKind::Array => "arrays",
        MemoryKind::Graph => "owned by graphs",
        other => other.word(),
    }
}

/// What a library allocates memory for, and how to reduce it.
pub(super) fn library_need(name: &str) -> &'static str {
    match name.split(".so").next() {
        Some("libcublas") => "the workspace of each of its handles; use fewer handles, or set a workspace of your own.",
        Some("libnccl") => {
            "the buffers of each of its communicators; use fewer of them, or smaller buffers (NCCL_BUFFSIZE)."
        }
        _ => "what for is not known; its documentation may say.",
    }
}

/// What a row's memory is and how to reduce it. `None` if another table says that.
fn sentence(row: &BalanceRow) -> Option<&'static str> {
    Some(match row.item {
        BalanceItem::Live(MemoryKind::Graph) => {
            "allocated by launched graphs and not freed yet; no leak if the graph runs again. \
             Free it on a stream, or instantiate the graph with AUTO_FREE_ON_LAUNCH."
        }
        BalanceItem::Live(MemoryKind::Virtual) => {
            "physical memory of cuMemCreate; it is freed once it is released and unmapped everywhere."
        }
        BalanceItem::Live(_) => return None,
        BalanceItem::Library(ref name) => library_need(name),
        BalanceItem::Before => {
            "in use from the driver's pool before the recording; record from the start to see what it is."
        }
        BalanceItem::Rounding => "the pool rounds each block up; few large blocks waste less than many small ones.",
        BalanceItem::NotSeen => {
            "the driver counts more or less than was recorded; the notes of this report name the calls that were not seen."
        }
        BalanceItem::PoolSlack => {
            "used by the next allocations; cuMemPoolTrimTo releases it, a release threshold keeps it."
        }
        BalanceItem::GraphSlack => "kept for the next launch; cuDeviceGraphMemTrim releases it.",
        BalanceItem::ClassicSlack => "cuMemAlloc reserves whole segments; blocks from pools share segments.",
        BalanceItem::PageCache => "files that Linux keeps in memory while nobody asks for it; it is available.",
        BalanceItem::Process => {
            "on the heap, stacks and what it maps, without mapped files; the heap's report says more."
        }
        BalanceItem::Unexplained if row.bytes < 0 => {
            "more was recorded than the device has in use: something is counted twice, or its free was not seen."
        }
        BalanceItem::Unexplained => {
            "for example the context, loaded modules and kernel stacks of this process, managed memory on the device, and the memory of \
             other processes; nvidia-smi lists processes."
        }
        // Rows that only the process's balance has.
        _ => return None,
    })
}

fn segments_section(device: &DeviceView<'_>) -> Option<Section> {
    let all = fragmentation(device);
    if all.segments == 0 {
        return None;
    }
    let (count, reserved) = (grouped(all.segments as u64), Bytes(all.reserved));
    let told = match () {
        () if all.estimated => "some of them estimated from addresses",
        () if device.data().is_python() => "as PyTorch's allocator reports",
        () => "as the driver reports",
    };
    let mut lines = vec![
        format!("{reserved} in {count} segments now, {told}; {} of it in live blocks", Bytes(all.live)),
        format!(
            "{} holes, the largest of {}; {} in empty segments",
            grouped(all.holes as u64),
            Bytes(all.largest_hole),
            Bytes(all.empty)
        ),
    ];
    let stats = &device.stats;
    let peaks = (Bytes(stats.reserved_bytes.peak), Bytes(stats.allocated_bytes.peak));
    lines.push(format!("High-water marks: {} reserved, {} allocated", peaks.0, peaks.1));
    let mut section = Section::of_lines("segments", "Segments", lines);
    let pools = fragmentation_by_pool(device);
    if pools.iter().any(|(pool, _)| pool.is_some()) {
        section.columns = POOL_COLUMNS.to_vec();
        section.rows = pools.iter().map(|(pool, of_pool)| pool_row(*pool, of_pool)).collect();
    }
    Some(section)
}

const POOL_COLUMNS: [&str; 7] = ["Reserved", "Live", "Segments", "Holes", "Largest hole", "Empty", "Pool"];

fn pool_row(pool: Option<(u64, u64)>, all: &Fragmentation) -> Vec<Cell> {
    let name = pool.map_or("shared".to_owned(), |(first, second)| format!("private ({first}, {second})"));
    vec![
        Cell::Sum(all.reserved),
        Cell::Sum(all.live),
        Cell::Count(all.segments as u64),
        Cell::Count(all.holes as u64),
        Cell::Sum(all.largest_hole),
        Cell::Sum(all.empty),
        Cell::Text(name),
    ]
}

fn time_sections(device: &DeviceView<'_>) -> Vec<Section> {
    let all = time_in_driver(device);
    if all.ns() == 0 {
        return Vec::new();
    }
    let share = 100.0 * all.ns() as f64 / device.data().process.duration_ns.max(1) as f64;
    let mut by_line = time_section("driver_time", "Location", &time_by_line(device));
    by_line.about = vec![
        format!(
            "{} in {} calls that allocated and {} that freed: {share:.1} % of the",
            time(all.ns()),
            grouped(all.allocs),
            grouped(all.frees)
        ),
        "recorded time, all threads together.".to_owned(),
    ];
    by_line.notes = churn(device).map_or_else(Vec::new, |churn| churn_notes(&churn));
    let by_scope = time_section("driver_time_by_scope", "Scope", &time_by_scope(device));
    vec![by_line, Section { title: "Time in the driver's allocator, by scope".to_owned(), ..by_scope }]
}

fn time_section(key: &'static str, last: &'static str, rows: &[TimeRow]) -> Section {
    let columns = ["Time", "Allocs", "Mean time", "Frees", "Mean time", last];
    let mut section = Section::of_columns(key, "Time in the driver's allocator", &columns);
    for TimeRow { label, allocs, alloc_ns, frees, free_ns } in rows.iter().take(ROWS) {
        let (alloc, free) = (each(*alloc_ns, *allocs), each(*free_ns, *frees));
        let (allocs, frees) = (Cell::Count(*allocs), Cell::Count(*frees));
        section.rows.push(vec![Cell::Time(alloc_ns + free_ns), allocs, alloc, frees, free, Cell::Text(label.clone())]);
    }
    section
}

fn each(ns: u64, calls: u64) -> Cell {
    ns.checked_div(calls).map_or(Cell::Unknown, Cell::Time)
}

/// `12 ns`, `12.0 µs`, `12.0 ms`, `12.0 s`, `3.2 min`, `3.2 h`, `12.0 days`
pub(crate) fn time(ns: u64) -> String {
    let time = ns as f64;
    match time {
        ..1e4 => format!("{ns} ns"),
        ..1e6 => format!("{:.1} µs", time / 1e3),
        ..1e10 => format!("{:.1} ms", time / 1e6),
        ..120e9 => format!("{:.1} s", time / 1e9),
        ..7200e9 => format!("{:.1} min", time / 60e9),
        ..172_800e9 => format!("{:.1} h", time / 3600e9),
        _ => format!("{:.1} days", time / 86_400e9),
    }
}

fn churn_notes(churn: &Churn) -> Vec<String> {
    vec![
        format!(
            "The pool released memory and reserved {} again; the {} calls that made it grow took {}.",
            Bytes(churn.bytes),
            grouped(churn.calls),
            time(churn.ns)
        ),
        format!(
            "Its release threshold is {}. To keep {}, raise it, with cudarc:",
            Bytes(churn.release_threshold),
            Bytes(churn.keep)
        ),
        "    use cudarc::driver::{result, sys, sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD};"
            .to_owned(),
        format!("    let mut keep: u64 = {};", churn.keep),
        "    let pool = unsafe { result::device::get_default_mem_pool(context.cu_device())? };".to_owned(),
        "    let set = (CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut keep).cast());".to_owned(),
        "    unsafe { sys::cuMemPoolSetAttribute(pool, set.0, set.1) }.result()?;".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::{LINE_7, LINE_9, Story, frame, stacks, two_lines_and_a_temporary};
    use crate::snapshot::{
        CallTime, DeviceMemory, DeviceThreads, GpuWork, KernelId, LocalMemory, Pool, StackId, SystemMemory,
    };

    #[test]
    fn a_device_is_told_of_in_sections_and_other_memory_is_not() {
        let heap = two_lines_and_a_temporary();
        assert_eq!(sections(&DeviceView::of(&heap, &heap.devices[0])), []);
        let mut trace = Story::cuda(0);
        trace.memory_of_device(DeviceMemory { free: 1 << 30, total: 3 << 30, ..DeviceMemory::default() });
        trace.pool(Pool { used: 4096, reserved: 32 << 20, ..Pool::default() });
        trace.segment_alloc(0, 1 << 20).alloc("input", 2000).on(LINE_7);
        trace.driver_took(CallTime { stack: LINE_7, allocs: 4, alloc_ns: 50_000, ..CallTime::default() });
        let data = trace.build();
        let text = format!("{:?}", sections(&DeviceView::of(&data, &data.devices[0])));
        for expected in ["2.000 GiB of 3.000 GiB used", "= all that is used", "1 segments", "50.0 µs", "Time(12500)"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn it_is_said_who_reported_the_segments() {
        let of = |file: &str, is_reported: bool| {
            let mut trace = Story::cuda(0);
            trace.stacks(stacks(vec![frame("main", file, 1)], [[0]]));
            if is_reported {
                trace.segment_alloc(0, 1 << 20);
            }
            let data = trace.alloc("input", 2000).on(StackId(1)).build();
            segments_section(&DeviceView::of(&data, &data.devices[0])).unwrap().about[0].clone()
        };
        assert!(of("main.rs", true).contains("as the driver reports"));
        assert!(of("main.py", true).contains("as PyTorch's allocator reports"));
        assert!(of("main.rs", false).contains("some of them estimated from addresses"));
    }

    #[test]
    fn of_an_integrated_device_what_is_available_is_said_and_not_what_the_driver_calls_free() {
        let of = |unified| {
            let mut trace = Story::cuda(0);
            trace.alloc("input", 2000).on(LINE_7);
            trace.memory_of_device(DeviceMemory {
                free: 2 << 30,
                total: 120 << 30,
                unified,
                ..DeviceMemory::default()
            });
            let data = trace.build();
            sections(&DeviceView::of(&data, &data.devices[0])).swap_remove(0)
        };
        let system = Some(SystemMemory { total: 121 << 30, available: 90 << 30, free: 1 << 30 });
        let read = of(Some(UnifiedMemory { system, process: None }));
        assert_eq!(read.about[1], "90.00 GiB of its 121.0 GiB are available; the driver calls 2.000 GiB free.");
        // 90 GiB minus what the driver reports as free.
        let page_cache = read.rows.iter().find(|row| row[2] == Cell::Text("page cache that Linux gives back".into()));
        assert_eq!(page_cache.map(|row| row[0].clone()), Some(Cell::Signed(88 << 30)));
        assert!(read.notes[0].starts_with("page cache that Linux gives back: files"), "{:?}", read.notes);
        assert!(of(Some(UnifiedMemory::default())).about[1].contains("was not read"));
        assert!(of(None).about.is_empty());
    }

    #[test]
    fn the_unexplained_has_parts_and_the_kernel_that_needs_most() {
        let of = |bytes| {
            let mut trace = Story::cuda(0);
            let threads = Some(DeviceThreads { count: 1 << 18, stack: 1 << 10 });
            trace.memory_of_device(DeviceMemory { free: 0, total: 8 << 30, threads, ..DeviceMemory::default() });
            trace.alloc("input", 2000).on(LINE_7);
            let mut data = trace.build();
            let kernels = vec!["small".into(), "large".into()];
            let local = vec![LocalMemory { kernel: KernelId(1), bytes, stack: LINE_9 }];
            data.gpu_work = Some(GpuWork { kernels, local, ..GpuWork::default() });
            sections(&DeviceView::of(&data, &data.devices[0])).swap_remove(1)
        };
        let section = of(4096);
        assert_eq!((&*section.key, section.rows.len()), ("unexplained", 4));
        assert_eq!(section.title, "What may be in the unexplained 8.000 GiB");
        let note = "A thread of `large` needs 4,096 bytes of local memory, launched at ";
        assert!(section.notes[0].starts_with(note) && section.notes[0].contains(":9"), "{:?}", section.notes);
        assert_eq!(section.rows[0][..2], [Cell::Sum(1 << 28), Cell::Sum(1 << 30)]);
        assert_eq!(of(1024).notes, Vec::<String>::new(), "not more than the default");
    }

    #[test]
    fn more_than_the_device_has_is_explained() {
        let over = BalanceRow { item: BalanceItem::Unexplained, bytes: -1 };
        assert!(sentence(&over).unwrap().contains("twice"));
    }

    #[test]
    fn times_have_units_that_fit() {
        let second = 1_000_000_000;
        let short = [9_999, 10_000, 9_999_900_000].map(time);
        assert_eq!(short, ["9999 ns", "10.0 µs", "9999.9 ms"]);
        let times = [10, 119, 180, 11_520, 260_000].map(|seconds| time(seconds * second));
        assert_eq!(times, ["10.0 s", "119.0 s", "3.0 min", "3.2 h", "3.0 days"]);
    }
}
