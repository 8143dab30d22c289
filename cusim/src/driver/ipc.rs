//! IPC: memory of other processes, by handles of 64 bytes.

use super::abi::Out;
use super::call::{allocating, freeing};
use super::process::with;
use crate::code::INVALID_VALUE;
use crate::machine::Ticket;

/// The only flag that exists. It must be set.
const LAZY_PEER_ACCESS: u32 = 1;

driver! {
    fn cuIpcGetMemHandle(handle: Out<Ticket>, address: u64) => with(|machine| handle.set(machine.ticket(address)?));

    fn cuIpcOpenMemHandle_v2(address: Out<u64>, handle: Ticket, flags: u32) {
        allocating(address, |machine, context| {
            if flags == LAZY_PEER_ACCESS { machine.open_ticket(handle, context) } else { Err(INVALID_VALUE) }
        })
    }

    fn cuIpcCloseMemHandle(address: u64) => freeing(|machine, context| machine.close_ticket(address, context));
}
