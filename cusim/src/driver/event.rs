//! Events: points in time on a stream.

use std::time::Instant;

use super::abi::{Out, answer};
use super::copy::check_stream;
use super::process::{begin, with};
use super::thread::current;
use crate::code::{INVALID_HANDLE, NOT_READY};
use crate::faults::Call;

driver! {
    fn cuEventCreate(event: Out<u64>, _flags: u32) {
        begin(Call::Event)?;
        let context = current()?;
        event.set(with(|machine| Ok(machine.create_event(context)))?)
    }

    fn cuEventDestroy_v2(event: u64) {
        with(|machine| machine.events.remove(&event).map(|_| ()).ok_or(INVALID_HANDLE))
    }

    fn cuEventRecord(event: u64, stream: u64) {
        check_stream(stream)?;
        with(|machine| {
            machine.events.get_mut(&event).ok_or(INVALID_HANDLE)?.recorded = Some(Instant::now());
            Ok(())
        })
    }

    fn cuEventRecordWithFlags(event: u64, stream: u64, _flags: u32) {
        answer(cuEventRecord(event, stream))
    }

    fn cuEventQuery(event: u64) {
        with(|machine| machine.event(event).map(|_| ()))
    }

    fn cuEventSynchronize(event: u64) {
        begin(Call::Sync)?;
        with(|machine| {
            let context = machine.event(event)?.context;
            let device = machine.context(context)?.device;
            machine.synchronise(device);
            Ok(())
        })
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, from: u64, to: u64) {
        let (from, to) = with(|machine| Ok((machine.event(from)?, machine.event(to)?)))?;
        let (Some(from), Some(to)) = (from.recorded, to.recorded) else { return Err(INVALID_HANDLE) };
        milliseconds.set(to.checked_duration_since(from).ok_or(NOT_READY)?.as_secs_f32() * 1000.0)
    }
}

per_thread! {
    fn cuEventRecord_ptsz = cuEventRecord(event: u64; stream);
    fn cuEventRecordWithFlags_ptsz = cuEventRecordWithFlags(event: u64; stream; flags: u32);
}

same! {
    fn cuEventElapsedTime_v2 = cuEventElapsedTime(milliseconds: Out<f32>, from: u64, to: u64);
}
