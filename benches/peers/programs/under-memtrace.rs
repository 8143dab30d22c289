//! The work under memtrace; for `--record` see `options::options`.

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

/// What the other profilers do by themselves: the file, with symbols.
fn finish(session: Option<Session>, args: &Args) -> Outcome<String> {
    let Some(session) = session else { return Ok(String::new()) };
    let snapshot = session.snapshot();
    if let Some(out) = &args.out {
        snapshot.write_as(out, &memtrace::export::Pickle::default())?;
    }
    Ok(told(&snapshot))
}

/// The peak, how much of it has a frame of the program, and what went through the allocator.
fn told(snapshot: &Snapshot) -> String {
    let Some(device) = snapshot.device(Device::Cpu) else { return String::new() };
    // A block of a sample stands for more than its size.
    let weights = device.peak_weights().filter(|(block, _)| reaches_user(snapshot, block.stack));
    let user: u64 = weights.map(|(_, weight)| weight.bytes).sum();
    // Counters have no stacks.
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
