//! What a test asks the simulator itself: functions that no real driver has. Found by `dlsym`; a program
//! can tell by them that the driver is a simulated one.

use super::abi::Out;
use super::process::with;
use crate::Machine;
use crate::history::{Kind, Record};
use crate::machine::Ticket;

/// Copies records from `from` on (the first is 1), at most `room`; gives how many.
#[unsafe(no_mangle)]
extern "C" fn memtrace_cusim_events(from: u64, to: Out<Record>, room: usize) -> usize {
    let copied = with(|machine| {
        let records = machine.history().records();
        let first = records.partition_point(|record| record.number < from);
        let wanted = records.iter().skip(first).take(room);
        Ok(wanted.enumerate().map(|(index, record)| to.at(index).offer(*record)).count())
    });
    copied.unwrap_or(0)
}

/// How many records there were.
#[unsafe(no_mangle)]
extern "C" fn memtrace_cusim_event_count() -> u64 {
    with(|machine| Ok(machine.history().count())).unwrap_or(0)
}

/// Bytes in live blocks of the device's default pool.
#[unsafe(no_mangle)]
extern "C" fn memtrace_cusim_used(device: i32) -> u64 {
    counter(device, |machine, device| machine.counters(device, Kind::Pool).used)
}

/// Bytes in segments of the device's default pool.
#[unsafe(no_mangle)]
extern "C" fn memtrace_cusim_reserved(device: i32) -> u64 {
    counter(device, |machine, device| machine.counters(device, Kind::Pool).reserved)
}

/// Bytes of the device that other processes have.
#[unsafe(no_mangle)]
extern "C" fn memtrace_cusim_others(device: i32) -> u64 {
    counter(device, |machine, device| machine.config.others.get(device).copied().unwrap_or(0))
}

/// Bytes that the device's contexts and modules take.
#[unsafe(no_mangle)]
extern "C" fn memtrace_cusim_overhead(device: i32) -> u64 {
    counter(device, Machine::overhead)
}

/// Bytes in live allocations of graphs.
#[unsafe(no_mangle)]
extern "C" fn memtrace_cusim_graph_used(device: i32) -> u64 {
    counter(device, |machine, device| machine.counters(device, Kind::Graph).used)
}

/// Bytes that the device keeps for graphs.
#[unsafe(no_mangle)]
extern "C" fn memtrace_cusim_graph_reserved(device: i32) -> u64 {
    counter(device, |machine, device| machine.counters(device, Kind::Graph).reserved)
}

/// Bytes of the device that somebody has, other processes too.
#[unsafe(no_mangle)]
extern "C" fn memtrace_cusim_taken(device: i32) -> u64 {
    counter(device, Machine::taken)
}

/// Writes a handle of that much memory for `cuIpcOpenMemHandle`, as if from another process: other memory
/// each time. `cuMemPoolImportPointer` takes it, too.
#[unsafe(no_mangle)]
extern "C" fn memtrace_cusim_foreign_handle(size: u64, handle: Out<Ticket>) {
    let _ = with(|machine| {
        let address = machine.new_handle();
        handle.set(Ticket::foreign(address, size))
    });
}

fn counter(device: i32, read: impl Fn(&Machine, usize) -> u64) -> u64 {
    with(|machine| {
        let device = machine.device(device)?;
        Ok(read(machine, device))
    })
    .unwrap_or(0)
}
