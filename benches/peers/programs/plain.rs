//! The workload on the system's allocator, without a profiler.

use peers::{Args, Outcome, run};

fn main() -> Outcome<()> {
    run(&Args::parse()?, || Ok(()), |()| Ok(String::new()))
}
