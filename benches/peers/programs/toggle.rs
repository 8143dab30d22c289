//! Iterations with recording off and on in alternation, in one process. `--iterations` is the number of pairs, `--each` that of
//! iterations in each half of a pair, `--record` the threshold. Prints the processor time of each half as a line of JSON.

mod options;

use memtrace::Device;
use peers::{Args, Clock, Outcome, Work};

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

struct Measured {
    cpu_ns: u128,
    allocations: u64,
}

fn main() -> Outcome<()> {
    let args = Args::parse()?;
    let mut work = Work::load(&args)?;
    // Two warm-up iterations of each kind fill caches.
    for _ in 0..2 {
        measure(&mut work, &args, false)?;
        measure(&mut work, &args, true)?;
    }
    let (mut off, mut on) = (Vec::new(), Vec::new());
    let mut allocations = 0;
    for pair in 0..args.iterations {
        // The order within a pair alternates, too.
        for recorded in [pair % 2 == 1, pair % 2 == 0] {
            let took = measure(&mut work, &args, recorded)?;
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

/// Some iterations, recorded or not. A recording starts just before in both cases, so that its side effects (sleeping
/// threads of the pool, cold caches) do not count as overhead.
fn measure(work: &mut Work, args: &Args, recorded: bool) -> Outcome<Measured> {
    let session = options::options(&args.record).map(|options| options.start()).transpose()?;
    let session = session.filter(|_| recorded);
    let began = Clock::now();
    for _ in 0..args.each {
        work.iteration()?;
    }
    let cpu_ns = began.elapsed().cpu.as_nanos();
    let allocations = memtrace::stats(Device::Cpu).allocations.allocated;
    drop(session);
    Ok(Measured { cpu_ns, allocations })
}
