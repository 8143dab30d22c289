//! A recording for each check, which must contain what was done and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cudarc::driver::sys::CUresult;
use memtrace::snapshot::RecordKind;
use memtrace::{Device, Session, Snapshot, StackContext};

use crate::raw::Outcome;
use crate::table::{Row, Table, message};

/// What was done, in order: allocated bytes, or freed bytes as a negative number.
pub(crate) type Did = Vec<(Device, i64)>;

pub(crate) fn came_and_went(device: Device, size: i64) -> Outcome<Did> {
    Ok(vec![(device, size), (device, -size)])
}

/// Starts a recording without stacks, because symbol look-up would take most of the time.
pub(crate) fn recording() -> Session {
    memtrace::builder().context(StackContext::None).start().expect("no other session is under way")
}

/// A row: `work` returns what it did, which must have been recorded.
pub(crate) fn watch(table: &mut Table, name: &str, work: impl FnOnce() -> Outcome<Did>) {
    let session = recording();
    let outcome = catch_unwind(AssertUnwindSafe(work));
    let snapshot = session.snapshot();
    table.add(&match outcome {
        Ok(Ok(did)) => compare(name, did, &snapshot),
        Ok(Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)) => Row::info(name, "not supported (code 801)"),
        Ok(Err(code)) => Row::check(name, false, format!("the driver refused: {code:?}")),
        Err(panic) => Row::check(name, false, message(&*panic)),
    });
}

fn compare(name: &str, mut did: Did, snapshot: &Snapshot) -> Row {
    let mut seen = recorded(snapshot);
    did.sort_by_key(|(device, _)| *device);
    seen.sort_by_key(|(device, _)| *device);
    let health = &snapshot.health;
    let counted = (health.unknown_frees, health.refused_frees);
    let mut detail = format!("{} records expected, {} seen", did.len(), seen.len());
    if seen != did || counted != (0, 0) {
        detail += &format!("\nexpected {did:?}\nseen     {seen:?}, unknown and refused frees {counted:?}");
    }
    Row::check(name, seen == did && counted == (0, 0), detail)
}

fn recorded(snapshot: &Snapshot) -> Did {
    let others = snapshot.devices.iter().filter(|device| device.device != Device::Cpu);
    let signed = |kind, size: u64| if kind == RecordKind::Alloc { size as i64 } else { -(size as i64) };
    others.flat_map(|d| d.records.iter().map(|record| (d.device, signed(record.kind, record.size)))).collect()
}
