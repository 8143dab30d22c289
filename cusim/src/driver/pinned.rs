//! Pinned and registered host memory.

use super::abi::{Out, answer};
use super::call::{allocating, freeing};
use super::process::{pause, with};
use super::thread::current;
use crate::code::{INVALID_VALUE, demand};
use crate::faults::CallKind;

driver! {
    fn cuMemHostAlloc(address: Out<u64>, size: usize, flags: u32) =>
        allocating(address, |machine, context| machine.allocate_host(size as u64, flags, context));
    fn cuMemAllocHost_v2(address: Out<u64>, size: usize) => answer(cuMemHostAlloc(address, size, 0));
    fn cuMemFreeHost(address: u64) => freeing(|machine, context| machine.free_host(address, context));

    fn cuMemHostRegister_v2(address: u64, size: usize, flags: u32) | cuMemHostRegister() {
        pause(CallKind::Alloc);
        let context = current()?;
        demand(address != 0 && size > 0 && address.checked_add(size as u64).is_some())?;
        with(|machine| machine.register_host(address, size as u64, flags, context))
    }

    fn cuMemHostUnregister(address: u64) => freeing(|machine, context| machine.unregister_host(address, context));

    fn cuMemHostGetDevicePointer_v2(device_address: Out<u64>, address: u64, _flags: u32) {
        with(|machine| machine.host_block(address).ok_or(INVALID_VALUE))?;
        device_address.set(address)
    }

    fn cuMemHostGetFlags(flags: Out<u32>, address: u64) {
        let block = with(|machine| machine.host_block(address).ok_or(INVALID_VALUE))?;
        flags.set(block.flags)
    }
}
