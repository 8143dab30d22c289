//! The work on jemalloc; `_RJEM_MALLOC_CONF` says what it profiles, and it writes at the end by itself.

use peers::{Args, Outcome, run};

#[global_allocator]
static ALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> Outcome<()> {
    run(&Args::parse()?, || Ok(()), |()| Ok(String::new()))
}
