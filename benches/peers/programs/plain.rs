//! The work alone, on the system's allocator.

use peers::{Args, Outcome, run};

fn main() -> Outcome<()> {
    run(&Args::parse()?, || Ok(()), |()| Ok(String::new()))
}
