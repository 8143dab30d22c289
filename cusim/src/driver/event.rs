//! Events: points in time on a stream.

use super::abi::{Out, answer};
use super::call::check_stream;
use super::process::{begin, with};
use super::thread::current;
use crate::code::{INVALID_HANDLE, NOT_READY};
use crate::faults::CallKind;

driver! {
    fn cuEventCreate(event: Out<u64>, _flags: u32) {
        begin(CallKind::Event)?;
        let context = current()?;
        event.set_with(|machine| Ok(machine.create_event(context)))
    }

    fn cuEventDestroy_v2(event: u64) => with(|machine| machine.events.remove(&event).map(|_| ()).ok_or(INVALID_HANDLE));

    fn cuEventRecord(event: u64, stream: u64) | cuEventRecord_ptsz(stream) {
        check_stream(stream)?;
        with(|machine| machine.record_event(event))
    }

    fn cuEventRecordWithFlags(event: u64, stream: u64, _flags: u32) | cuEventRecordWithFlags_ptsz(stream) =>
        answer(cuEventRecord(event, stream));

    fn cuEventQuery(event: u64) => with(|machine| machine.event(event).map(|_| ()));

    fn cuEventSynchronize(event: u64) {
        begin(CallKind::Sync)?;
        with(|machine| {
            let context = machine.event(event)?.context;
            machine.synchronise_context(context)
        })
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, from: u64, to: u64) | cuEventElapsedTime_v2() {
        let (from, to) = with(|machine| Ok((machine.event(from)?, machine.event(to)?)))?;
        let (Some(from), Some(to)) = (from.recorded, to.recorded) else { return Err(INVALID_HANDLE) };
        milliseconds.set(to.checked_duration_since(from).ok_or(NOT_READY)?.as_secs_f32() * 1000.0)
    }
}
