//! Functions of the simulator for tests, found by `dlsym`. No real driver has them, so they also show that the driver
//! is a simulated one.

use super::abi::Out;
use super::process::{with, with_device};
use crate::SimMachine;
use crate::history::{BlockKind, HistoryRecord};
use crate::machine::Ticket;

/// Copies at most `room` records, starting with number `from` (the first is 1). Returns how many were copied.
#[unsafe(no_mangle)]
extern "C" fn memtrace_cusim_events(from: u64, to: Out<HistoryRecord>, room: usize) -> usize {
    let copied = with(|machine| {
        let records = machine.history().records();
        let first = records.partition_point(|record| record.number < from);
        let wanted = records.iter().skip(first).take(room);
        Ok(wanted.enumerate().map(|(index, record)| to.at(index).offer(*record)).count())
    });
    copied.unwrap_or(0)
}

/// The number of records.
#[unsafe(no_mangle)]
extern "C" fn memtrace_cusim_event_count() -> u64 {
    with(|machine| Ok(machine.history().count())).unwrap_or(0)
}

macro_rules! counters {
    ($($(#[$doc:meta])* fn $name:ident = $read:expr;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        extern "C" fn $name(device: i32) -> u64 {
            let read: fn(&SimMachine, usize) -> u64 = $read;
            with_device(device, |machine, device| Ok(read(machine, device))).unwrap_or(0)
        }
    )* };
}

counters! {
    /// Bytes in live blocks of the device's default pool.
    fn memtrace_cusim_used = |machine, device| machine.counters(device, BlockKind::Pool).used;
    /// Bytes in segments of the device's default pool.
    fn memtrace_cusim_reserved = |machine, device| machine.counters(device, BlockKind::Pool).reserved;
    /// Bytes that other processes use.
    fn memtrace_cusim_others = |machine, device| machine.config.others.get(device).copied().unwrap_or(0);
    /// Bytes of contexts and modules.
    fn memtrace_cusim_overhead = SimMachine::overhead;
    /// Bytes in live allocations of graphs.
    fn memtrace_cusim_graph_used = |machine, device| machine.counters(device, BlockKind::Graph).used;
    /// Bytes reserved for graphs.
    fn memtrace_cusim_graph_reserved = |machine, device| machine.counters(device, BlockKind::Graph).reserved;
    /// All bytes of the device that are not free.
    fn memtrace_cusim_taken = SimMachine::taken;
}

/// Writes a handle for `cuIpcOpenMemHandle` or `cuMemPoolImportPointer`, as if from another process, for new memory at
/// each call.
#[unsafe(no_mangle)]
extern "C" fn memtrace_cusim_foreign_handle(size: u64, handle: Out<Ticket>) {
    let _ = with(|machine| {
        let address = machine.new_handle();
        handle.set(Ticket::foreign(address, size))
    });
}
