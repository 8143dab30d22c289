//! Iterations with recording off and on in turns, in one process; `--iterations` is the number of pairs and
//! `--record` the size from which on blocks are recorded. Prints the processor time of each as a line of JSON.

mod options;

use memtrace::Device;
use peers::{Args, Clock, Outcome, Work};

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// What one iteration took.
struct Measured {
    cpu_ns: u128,
    allocations: u64,
}

fn main() -> Outcome<()> {
    let args = Args::parse()?;
    let mut work = Work::load(&args)?;
    // Twice each: the first ones fill caches, here as there.
    for _ in 0..2 {
        measure(&mut work, &args.record, false)?;
        measure(&mut work, &args.record, true)?;
    }
    let (mut off, mut on) = (Vec::new(), Vec::new());
    let mut allocations = 0;
    for pair in 0..args.iterations {
        // In turns also which of the two comes first.
        for recorded in [pair % 2 == 1, pair % 2 == 0] {
            let took = measure(&mut work, &args.record, recorded)?;
            if recorded {
                on.push(took.cpu_ns)
            } else {
                off.push(took.cpu_ns)
            }
            allocations = allocations.max(took.allocations);
        }
    }
    println!(r#"{{"off_ns": {off:?}, "on_ns": {on:?}, "allocations": {allocations}}}"#);
    Ok(())
}

/// One iteration, recorded or not. A recording has begun just before in both cases: what that alone does (threads of the
/// pool have fallen asleep, caches are not what they were) is not what recording adds.
fn measure(work: &mut Work, record: &str, recorded: bool) -> Outcome<Measured> {
    let session = options::options(record).map(|options| options.start()).transpose()?;
    let session = session.filter(|_| recorded);
    let began = Clock::now();
    work.iteration()?;
    let cpu_ns = began.elapsed().cpu.as_nanos();
    let allocations = memtrace::stats(Device::Cpu).allocations.allocated;
    drop(session);
    Ok(Measured { cpu_ns, allocations })
}
