//! CUDA streams.

use super::abi::{Out, answer};
use super::call::{check_stream, unless_captured};
use super::process::{begin, with};
use super::thread::{self, current};
use crate::code::{CAPTURE_UNSUPPORTED, INVALID_VALUE, demand_or};
use crate::faults::CallKind;
use crate::machine::{DEFAULT_STREAMS, node_type};

pub(super) type HostFunction = Option<unsafe extern "C" fn(*mut std::ffi::c_void)>;

driver! {
    fn cuStreamCreate(stream: Out<u64>, flags: u32) => answer(cuStreamCreateWithPriority(stream, flags, 0));

    fn cuStreamCreateWithPriority(stream: Out<u64>, flags: u32, priority: i32) {
        begin(CallKind::Stream)?;
        let context = current()?;
        stream.set_with(|machine| Ok(machine.create_stream(context, flags, priority)))
    }

    fn cuStreamDestroy_v2(stream: u64) | cuStreamDestroy() => with(|machine| machine.destroy_stream(stream));

    fn cuStreamSynchronize(stream: u64) | cuStreamSynchronize_ptsz(stream) {
        begin(CallKind::Sync)?;
        with(|machine| {
            demand_or(!machine.is_capturing(stream), CAPTURE_UNSUPPORTED)?;
            let context = machine.context_of(stream, current())?;
            machine.synchronise_context(context)
        })
    }

    fn cuStreamQuery(stream: u64) | cuStreamQuery_ptsz(stream) => check_stream(stream);

    fn cuStreamWaitEvent(stream: u64, event: u64, _flags: u32) | cuStreamWaitEvent_ptsz(stream) {
        check_stream(stream)?;
        with(|machine| machine.event(event).map(|_| ()))
    }

    fn cuStreamGetCtx(stream: u64, context: Out<u64>) | cuStreamGetCtx_ptsz(stream) =>
        with(|machine| context.set(machine.context_of(stream, current())?));

    fn cuStreamGetFlags(stream: u64, flags: Out<u32>) | cuStreamGetFlags_ptsz(stream) {
        check_stream(stream)?;
        with(|machine| flags.set(machine.stream(stream).map_or(0, |stream| stream.flags)))
    }

    fn cuStreamGetPriority(stream: u64, priority: Out<i32>) | cuStreamGetPriority_ptsz(stream) {
        check_stream(stream)?;
        with(|machine| priority.set(machine.stream(stream).map_or(0, |stream| stream.priority)))
    }

    fn cuStreamGetId(stream: u64, id: Out<u64>) | cuStreamGetId_ptsz(stream) {
        check_stream(stream)?;
        id.set(if DEFAULT_STREAMS.contains(&stream) { stream } else { stream >> 4 })
    }

    fn cuStreamGetDevice(stream: u64, device: Out<i32>) {
        with(|machine| {
            let context = machine.context_of(stream, current())?;
            device.set(machine.context(context)?.device as i32)
        })
    }

    fn cuStreamAttachMemAsync(stream: u64, _address: u64, _length: usize, _flags: u32) | cuStreamAttachMemAsync_ptsz(stream) =>
        check_stream(stream);

    fn cuLaunchHostFunc(stream: u64, function: HostFunction, data: *mut std::ffi::c_void) | cuLaunchHostFunc_ptsz(stream) {
        check_stream(stream)?;
        let function = function.ok_or(INVALID_VALUE)?;
        unless_captured(stream, node_type::HOST, || {
            // SAFETY: the caller passes a function and its argument. No lock is held.
            unsafe { function(data) };
            Ok(())
        })
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) => mode.set(thread::set_mode(mode.get()?)?);
}
