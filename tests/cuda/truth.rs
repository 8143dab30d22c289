//! The simulator's event log, and comparisons with it. Programs that are linked against the driver use this file, too.

use std::collections::BTreeMap;

use memtrace::analysis::{self, BalanceItem};
use memtrace::snapshot::{DeviceSnapshot, MemoryKind, RecordKind};
use memtrace::{Device, DeviceView, Snapshot};

/// A function of the simulator, past all hooks.
pub(crate) fn simulator(name: &std::ffi::CStr) -> usize {
    // SAFETY: opens a loaded library and looks up a name.
    let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    // SAFETY: the handle is open and the name ends with a zero byte.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) as usize };
    assert_ne!(address, 0, "{name:?} is there");
    address
}

/// A record of the simulator's log. A copy of its package's type, which would link the simulator into the test.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Event {
    number: u64,
    pub(crate) op: u32,
    kind: u32,
    device: i32,
    result: u32,
    context: u64,
    stream: u64,
    pub(crate) thread: u64,
    pub(crate) address: u64,
    pub(crate) size: u64,
    used: u64,
    reserved: u64,
}

pub(crate) const ALLOC: u32 = 0;
pub(crate) const FREE: u32 = 1;
const RELEASE: u32 = 3;

/// All records of granted allocations and frees so far.
pub(crate) fn truth() -> Vec<Event> {
    // SAFETY: the function has this type.
    let count =
        unsafe { std::mem::transmute::<usize, extern "C" fn() -> u64>(simulator(c"memtrace_cusim_event_count")) };
    // SAFETY: the function has this type.
    let events = unsafe {
        std::mem::transmute::<usize, extern "C" fn(u64, *mut Event, usize) -> usize>(simulator(
            c"memtrace_cusim_events",
        ))
    };
    let mut records = vec![Event::default(); count() as usize];
    let copied = events(1, records.as_mut_ptr(), records.len());
    records.truncate(copied);
    records.retain(|record| record.result == 0 && record.op != RELEASE);
    records
}

const HOST_POOL: u32 = 10;
const MANAGED_POOL: u32 = 11;

pub(crate) fn device_of(record: &Event) -> Device {
    match kind_of(record) {
        _ if record.kind == HOST_POOL => Device::Pinned,
        _ if record.kind == MANAGED_POOL => Device::Managed,
        MemoryKind::Pinned | MemoryKind::Registered => Device::Pinned,
        MemoryKind::Managed => Device::Managed,
        MemoryKind::Imported => Device::Imported,
        _ => Device::Cuda(record.device as u32),
    }
}

fn kind_of(record: &Event) -> MemoryKind {
    use MemoryKind::{Array, Classic, Graph, Imported, Managed, Pinned, Pool, Registered, Virtual};
    [Pool, Classic, Managed, Pinned, Registered, Virtual, Array, Graph, Imported, Pool, Pool][record.kind as usize - 1]
}

/// Memory with a handle and without an address: the simulator logs the handle, memtrace makes up an address.
fn place_of(kind: MemoryKind, address: u64) -> u64 {
    match kind {
        MemoryKind::Virtual | MemoryKind::Array | MemoryKind::Imported => 0,
        _ => address,
    }
}

/// An event of a block: +1 or -1, its kind and its bytes.
type Events = Vec<(i8, MemoryKind, u64)>;

/// Compares the ledgers with the simulator's log, event by event: in the device's order if one thread made all of them,
/// else in the order of each address.
pub(crate) fn assert_equals_truth(snapshot: &Snapshot, in_order: bool) {
    let (mut truth_of, mut ours_of) = (BTreeMap::<_, Events>::new(), BTreeMap::<_, Events>::new());
    for record in truth() {
        let sign = if record.op == ALLOC { 1 } else { -1 };
        let key = (device_of(&record), if in_order { 0 } else { record.address });
        truth_of.entry(key).or_default().push((sign, kind_of(&record), record.size));
    }
    for device in snapshot.devices.iter().filter(|device| device.device != Device::Cpu) {
        assert_eq!(device.overwritten, 0);
        for record in &device.records {
            let sign = if record.kind == RecordKind::Alloc { 1 } else { -1 };
            let key = (device.device, if in_order { 0 } else { record.address });
            ours_of.entry(key).or_default().push((sign, record.memory, record.size));
        }
    }
    assert!(!truth_of.is_empty(), "something happened");
    if in_order {
        assert_eq!(ours_of, truth_of);
    } else {
        // Not with `assert_eq!`, because the lists are long.
        let wrong = truth_of.iter().find(|(key, events)| ours_of.get(key) != Some(events));
        assert_eq!(wrong.map(|(key, events)| (key, events, ours_of.get(key))), None);
        assert_eq!(ours_of.len(), truth_of.len());
    }
    assert_live_equals_truth(snapshot);
}

/// Checks that the device's balance adds up, and that its unexplained row is the memory of other processes, contexts
/// and modules.
fn assert_balances(snapshot: &Snapshot, device: &DeviceSnapshot) {
    let Device::Cuda(ordinal) = device.device else { return };
    let Some(balance) = analysis::balance(&DeviceView::of(snapshot, device)) else { return };
    assert_eq!(balance.rows.iter().map(|row| row.bytes).sum::<i64>(), balance.used as i64);
    assert_eq!(balance.used, of_device(c"memtrace_cusim_taken", ordinal), "{balance:?}");
    let unexplained: i64 =
        balance.rows.iter().filter(|row| row.item == BalanceItem::Unexplained).map(|row| row.bytes).sum();
    let others = of_device(c"memtrace_cusim_others", ordinal) + of_device(c"memtrace_cusim_overhead", ordinal);
    assert_eq!(unexplained, others as i64, "{balance:?}");
}

/// A handle to memory, as if from another process.
pub(crate) fn foreign_handle(size: u64) -> [u64; 8] {
    let function = simulator(c"memtrace_cusim_foreign_handle");
    // SAFETY: the function has this type.
    let function = unsafe { std::mem::transmute::<usize, extern "C" fn(u64, *mut [u64; 8])>(function) };
    let mut handle = [0; 8];
    function(size, &mut handle);
    handle
}

/// Synchronizes the context past the hooks.
pub(crate) fn synchronise_unseen() {
    let function = simulator(c"cuCtxSynchronize");
    // SAFETY: the function has this type.
    let function = unsafe { std::mem::transmute::<usize, extern "C" fn() -> u32>(function) };
    assert_eq!(function(), 0);
}

/// A counter of the simulator for a device.
pub(crate) fn of_device(name: &std::ffi::CStr, ordinal: u32) -> u64 {
    // SAFETY: the functions that are looked up have this type.
    let function = unsafe { std::mem::transmute::<usize, extern "C" fn(i32) -> u64>(simulator(name)) };
    function(ordinal as i32)
}

/// Compares the live blocks.
pub(crate) fn assert_live_equals_truth(snapshot: &Snapshot) {
    let (mut live, mut ours) = (BTreeMap::new(), BTreeMap::new());
    for record in truth() {
        let kind = kind_of(&record);
        let key = (device_of(&record), kind, place_of(kind, record.address), record.size);
        *live.entry(key).or_insert(0) += if record.op == ALLOC { 1 } else { -1 };
    }
    live.retain(|_, count| *count != 0);
    for device in snapshot.devices.iter().filter(|device| device.device != Device::Cpu) {
        for block in &device.live {
            let key = (device.device, block.memory, place_of(block.memory, block.address), block.size);
            *ours.entry(key).or_insert(0) += 1;
        }
    }
    assert_eq!(ours, live);
    snapshot.devices.iter().for_each(|device| assert_balances(snapshot, device));
    for device in snapshot.devices.iter().filter(|device| device.device != Device::Cpu) {
        let bytes: u64 = device.live.iter().map(|block| block.size).sum();
        assert_eq!(device.stats.allocated_bytes.current, bytes + device.not_recorded);
        assert_eq!(device.peak.blocks.iter().map(|block| block.size).sum::<u64>(), device.peak.bytes);
    }
}
