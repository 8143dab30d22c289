//! IPC: memory of other processes, by handles of 64 bytes.

use super::abi::Out;
use super::process::{pause, with};
use super::thread::current;
use crate::code::INVALID_VALUE;
use crate::faults::CallKind;
use crate::machine::Ticket;

/// The only flag, and a required one.
const LAZY_PEER_ACCESS: u32 = 1;

driver! {
    fn cuIpcGetMemHandle(handle: Out<Ticket>, address: u64) => with(|machine| handle.set(machine.ticket(address)?));

    fn cuIpcOpenMemHandle_v2(address: Out<u64>, handle: Ticket, flags: u32) {
        pause(CallKind::Alloc);
        let context = current()?;
        address.check()?;
        if flags != LAZY_PEER_ACCESS {
            return Err(INVALID_VALUE);
        }
        address.set_with(|machine| machine.open_ticket(handle, context))
    }

    fn cuIpcCloseMemHandle(address: u64) {
        pause(CallKind::Free);
        let context = current()?;
        with(|machine| machine.close_ticket(address, context))
    }
}
