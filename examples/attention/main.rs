//! Records attention with a written-out softmax, to compare it with PyTorch's snapshot: see docs/pytorch.md.

mod args;
mod model;
#[path = "../shared/options.rs"]
mod options;

use std::error::Error;

use args::Args;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let Some(args) = Args::parse()? else { return Ok(()) };
    let session = options::record(args.max_entries, (None, "1KiB"), None)?;
    let sum = model::forward_and_backward(args.shape, &args.device.open()?)?;
    println!("sum of the outputs: {sum}");
    let snapshot = session.snapshot();
    let out = args.out.unwrap_or(memtrace::output_dir("attention")?.join("attention.memtrace"));
    println!("wrote {}", snapshot.write(out)?.display());
    Ok(())
}
