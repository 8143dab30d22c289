//! The workload under memtrace; `options::options` reads `--record`.

mod options;

use memtrace::snapshot::{Frame, SnapshotData, StackId};
use memtrace::{Builder, Device, Session, Snapshot};
use peers::{Args, Outcome, run};

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

fn main() -> Outcome<()> {
    let args = Args::parse()?;
    run(&args, || Ok(options::options(&args.record).map(Builder::start).transpose()?), |session| finish(session, &args))
}

/// Writes the file with symbols, as the other profilers do at exit.
fn finish(session: Option<Session>, args: &Args) -> Outcome<String> {
    let Some(session) = session else { return Ok(String::new()) };
    let snapshot = session.snapshot();
    if let Some(out) = &args.out {
        snapshot.write_as(out, &memtrace::export::Pickle::default())?;
    }
    Ok(told(&snapshot))
}

/// The peak, its bytes with a frame of the program, and the allocator's counters, as JSON fields.
fn told(snapshot: &Snapshot) -> String {
    let Some(device) = snapshot.device(Device::Cpu) else { return String::new() };
    // The weight of a sampled block may exceed its size.
    let weights = device.peak_weights().filter(|(block, _)| reaches_user(snapshot, block.stack));
    let user: u64 = weights.map(|(_, weight)| weight.bytes).sum();
    // Without a recording there are only counters.
    let user = if device.peak.blocks.is_empty() { "null".to_owned() } else { user.to_string() };
    let (peak, allocations) = (device.peak.total(), device.stats.allocations.allocated);
    format!(r#", "peak": {peak}, "user": {user}, "allocations": {allocations}"#)
}

/// The same files as in `scripts/peers/outputs.py`.
fn is_user(frame: &Frame) -> bool {
    ["examples/resnet/", "examples/llama/", "user_code/"].iter().any(|part| frame.file_or_empty().contains(part))
}

fn reaches_user(data: &SnapshotData, stack: StackId) -> bool {
    data.stacks.frames(stack).any(is_user)
}
