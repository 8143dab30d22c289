//! The workload under dhat-rs; `--record full` keeps all frames of a stack, anything else dhat's default of ten.

use peers::{Args, Outcome, run};

#[global_allocator]
static ALLOC: dhat::Alloc = dhat::Alloc;

fn main() -> Outcome<()> {
    let args = Args::parse()?;
    let start = || {
        let builder = dhat::Profiler::builder().file_name(args.out.clone().ok_or("--out is missing")?);
        Ok(if args.record == "full" { builder.trim_backtraces(None).build() } else { builder.build() })
    };
    run(&args, start, |profiler| {
        drop(profiler);
        Ok(String::new())
    })
}
