//! The workload on jemalloc; `_RJEM_MALLOC_CONF` configures its profiler, which writes its file at exit.

use peers::{Args, Outcome, run};

#[global_allocator]
static ALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> Outcome<()> {
    run(&Args::parse()?, || Ok(()), |()| Ok(String::new()))
}
