//! Contexts, and which one is current.

use super::abi::{Out, answer};
use super::call::in_context;
use super::process::{begin, with, with_device};
use super::thread::{current, mode, number, pop, push, replace};
use crate::code::{Answer, INVALID_VALUE};
use crate::faults::CallKind;
use crate::machine::SimContext;

driver! {
    fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: i32) =>
        context.set(with_device(device, |machine, device| machine.retain_primary(device))?);
    fn cuDevicePrimaryCtxRelease_v2(device: i32) | cuDevicePrimaryCtxRelease() =>
        with_device(device, |machine, device| machine.release_primary(device));
    fn cuDevicePrimaryCtxReset_v2(device: i32) | cuDevicePrimaryCtxReset() => with_device(device, |machine, device| machine.reset_primary(device));

    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) =>
        with_device(device, |machine, device| machine.primary(device).map(|context| context.flags = flags));

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) {
        with_device(device, |machine, device| {
            let context = machine.primary(device)?;
            flags.set(context.flags)?;
            active.set(i32::from(context.count > 0))
        })
    }

    fn cuCtxCreate_v2(context: Out<u64>, flags: u32, device: i32) {
        let handle = with_device(device, |machine, device| machine.create_context(device, flags))?;
        context.set(handle)?;
        push(handle)
    }

    fn cuCtxDestroy_v2(context: u64) | cuCtxDestroy() {
        with(|machine| machine.destroy_context(context))?;
        if current() == Ok(context) { pop().map(|_| ()) } else { Ok(()) }
    }

    fn cuCtxGetCurrent(context: Out<u64>) {
        with(|_| Ok(()))?;
        context.set(current().unwrap_or(0))
    }

    fn cuCtxSetCurrent(context: u64) {
        with(|machine| if context == 0 { Ok(()) } else { machine.context(context).map(|_| ()) })?;
        replace(context)
    }

    fn cuCtxPushCurrent_v2(context: u64) {
        known(context)?;
        push(context)
    }

    fn cuCtxPopCurrent_v2(context: Out<u64>) {
        let handle = pop()?;
        context.offer(handle);
        Ok(())
    }

    fn cuCtxGetDevice(device: Out<i32>) => device.set(known(current()?)?.device as i32);
    fn cuCtxGetFlags(flags: Out<u32>) => flags.set(known(current()?)?.flags);

    fn cuCtxSetFlags(flags: u32) {
        let handle = current()?;
        with(|machine| machine.context_mut(handle).map(|context| context.flags = flags))
    }

    fn cuCtxGetId(context: u64, id: Out<u64>) => id.set(known(or_current(context)?)?.handle);

    fn cuCtxGetApiVersion(context: u64, version: Out<u32>) {
        known(or_current(context)?)?;
        version.set(3020)
    }

    fn cuCtxSynchronize() => synchronize(current()?);
    fn cuCtxSynchronize_v2(context: u64) => synchronize(or_current(context)?);

    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        current()?;
        least.offer(0);
        greatest.offer(-5);
        Ok(())
    }

    fn cuCtxGetLimit(value: Out<usize>, limit: u32) {
        let context = current()?;
        value.set(if limit == STACK { known(context)?.stack as usize } else { default_limit(limit)? })
    }

    fn cuCtxSetLimit(limit: u32, value: usize) {
        let context = current()?;
        if limit == STACK { with(|machine| machine.set_stack(context, value as u64)) } else { default_limit(limit).map(drop) }
    }


    fn cuCtxGetCacheConfig(config: Out<u32>) => in_context(|| config.set(0));
    fn cuCtxSetCacheConfig(_config: u32) => current().map(|_| ());
    fn cuCtxEnablePeerAccess(context: u64, _flags: u32) => known(context).map(|_| ());
    fn cuCtxDisablePeerAccess(context: u64) => known(context).map(|_| ());
    fn cuCtxCreate_v3(context: Out<u64>, _affinity: usize, _count: i32, flags: u32, device: i32) =>
        answer(cuCtxCreate_v2(context, flags, device));
    fn cuCtxCreate_v4(context: Out<u64>, _parameters: usize, flags: u32, device: i32) =>
        answer(cuCtxCreate_v2(context, flags, device));
}

/// `CU_LIMIT_STACK_SIZE`
const STACK: u32 = 0;

/// The default limits of the buffer for `printf` in kernels (1), and of the heap for `malloc` in kernels (2).
fn default_limit(limit: u32) -> Answer<usize> {
    match limit {
        1 => Ok(1 << 20),
        2 => Ok(8 << 20),
        _ => Err(INVALID_VALUE),
    }
}

fn synchronize(context: u64) -> Answer {
    begin(CallKind::Sync)?;
    with(|machine| {
        machine.context(context)?;
        machine.check_captures(number(), mode())?;
        machine.synchronise_context(context)
    })
}

fn known(context: u64) -> Answer<SimContext> {
    with(|machine| machine.context(context))
}

fn or_current(context: u64) -> Answer<u64> {
    if context == 0 { current() } else { Ok(context) }
}
