//! Streams.

use super::abi::Out;
use super::copy::check_stream;
use super::process::{begin, with};
use super::thread::{self, current};
use crate::code::{CAPTURE_UNSUPPORTED, INVALID_VALUE};
use crate::faults::Call;
use crate::machine::{DEFAULT_STREAMS, node_type};

/// A host function on a stream.
pub(super) type HostFunction = Option<unsafe extern "C" fn(*mut std::ffi::c_void)>;

driver! {
    fn cuStreamCreate(stream: Out<u64>, flags: u32) {
        begin(Call::Stream)?;
        let context = current()?;
        stream.set(with(|machine| Ok(machine.create_stream(context, flags, 0)))?)
    }

    fn cuStreamCreateWithPriority(stream: Out<u64>, flags: u32, priority: i32) {
        begin(Call::Stream)?;
        let context = current()?;
        stream.set(with(|machine| Ok(machine.create_stream(context, flags, priority)))?)
    }

    fn cuStreamDestroy_v2(stream: u64) {
        with(|machine| machine.destroy_stream(stream))
    }

    fn cuStreamSynchronize(stream: u64) {
        begin(Call::Sync)?;
        with(|machine| {
            if machine.is_capturing(stream) {
                return Err(CAPTURE_UNSUPPORTED);
            }
            let context = machine.context_of(stream, current())?;
            let device = machine.context(context)?.device;
            machine.synchronise(device);
            Ok(())
        })
    }

    fn cuStreamQuery(stream: u64) {
        check_stream(stream)
    }

    fn cuStreamWaitEvent(stream: u64, event: u64, _flags: u32) {
        check_stream(stream)?;
        with(|machine| machine.event(event).map(|_| ()))
    }

    fn cuStreamGetCtx(stream: u64, context: Out<u64>) {
        with(|machine| context.set(machine.context_of(stream, current())?))
    }

    fn cuStreamGetFlags(stream: u64, flags: Out<u32>) {
        check_stream(stream)?;
        with(|machine| flags.set(machine.stream(stream).map_or(0, |stream| stream.flags)))
    }

    fn cuStreamGetPriority(stream: u64, priority: Out<i32>) {
        check_stream(stream)?;
        with(|machine| priority.set(machine.stream(stream).map_or(0, |stream| stream.priority)))
    }

    fn cuStreamGetId(stream: u64, id: Out<u64>) {
        check_stream(stream)?;
        id.set(if DEFAULT_STREAMS.contains(&stream) { stream } else { stream >> 4 })
    }

    fn cuStreamGetDevice(stream: u64, device: Out<i32>) {
        with(|machine| {
            let context = machine.context_of(stream, current())?;
            device.set(machine.context(context)?.device as i32)
        })
    }

    fn cuStreamAttachMemAsync(stream: u64, _address: u64, _length: usize, _flags: u32) {
        check_stream(stream)
    }

    fn cuLaunchHostFunc(stream: u64, function: HostFunction, data: *mut std::ffi::c_void) {
        check_stream(stream)?;
        let function = function.ok_or(INVALID_VALUE)?;
        if with(|machine| machine.captures(stream, node_type::HOST))? {
            return Ok(());
        }
        // SAFETY: the caller gives a function and what it takes. No lock is held.
        unsafe { function(data) };
        Ok(())
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) {
        mode.set(thread::set_mode(mode.get()?)?)
    }
}

per_thread! {
    fn cuStreamSynchronize_ptsz = cuStreamSynchronize(; stream);
    fn cuStreamQuery_ptsz = cuStreamQuery(; stream);
    fn cuStreamWaitEvent_ptsz = cuStreamWaitEvent(; stream; event: u64, flags: u32);
    fn cuStreamGetCtx_ptsz = cuStreamGetCtx(; stream; context: Out<u64>);
    fn cuStreamGetFlags_ptsz = cuStreamGetFlags(; stream; flags: Out<u32>);
    fn cuStreamGetPriority_ptsz = cuStreamGetPriority(; stream; priority: Out<i32>);
    fn cuStreamGetId_ptsz = cuStreamGetId(; stream; id: Out<u64>);
    fn cuStreamAttachMemAsync_ptsz = cuStreamAttachMemAsync(; stream; address: u64, length: usize, flags: u32);
    fn cuLaunchHostFunc_ptsz = cuLaunchHostFunc(; stream; function: HostFunction, data: *mut std::ffi::c_void);
}
