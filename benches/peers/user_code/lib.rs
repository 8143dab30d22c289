//! Workloads for comparing heap profilers: those of the examples `resnet` and `llama`, without their output, and many
//! small blocks, of one thread and of eight. The programs differ only in their allocator.
//!
//! `scripts/bench-peers` builds and runs them; see its `--help`.

mod args;
mod blocks;
mod clock;
mod llama;
mod resnet;
mod threads;

// The examples' optimizer says what its tensors are to memtrace. Here it says so to nobody, so that no program has
// memtrace in it but those that record with it.
extern crate self as memtrace;

use std::error::Error;

pub use args::Args;
pub use clock::{Clock, most_resident};

#[doc(hidden)]
pub mod candle {
    /// Marks nothing.
    pub fn tag_optimizer(_tensors: [(&str, &candle_core::Tensor); 1]) {}

    /// Knows no names.
    pub fn name_of(_parameter: &candle_core::Tensor) -> Option<String> {
        None
    }
}

/// What may fail for any reason: the program then ends.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// A workload that can run repeatedly.
#[expect(missing_debug_implementations, reason = "the model has none")]
pub struct Work(Box<dyn Iteration>);

trait Iteration {
    fn iteration(&mut self) -> candle_core::Result<()>;
}

impl Work {
    /// Loads the model.
    pub fn load(args: &Args) -> Outcome<Self> {
        Ok(Self(match args.work.as_str() {
            "resnet" => Box::new(resnet::Training::new(args)?),
            "blocks" => Box::new(blocks::Blocks::new(args.blocks)),
            "threads" => Box::new(threads::Threads { count: args.blocks }),
            _ => Box::new(llama::Decode::new(args.tokens)?),
        }))
    }

    /// Runs a training step, generates a text of `--tokens` tokens, or allocates, replaces and frees `--blocks` blocks on one thread
    /// or on eight.
    pub fn iteration(&mut self) -> Outcome<()> {
        Ok(self.0.iteration()?)
    }
}

/// Runs the whole workload between `start` and `finish`, and prints its cost as a line of JSON, to which `finish` adds
/// fields.
///
/// The time excludes the profiler's writing of files; the time of the process includes it.
pub fn run<P>(
    args: &Args,
    start: impl FnOnce() -> Outcome<P>,
    finish: impl FnOnce(P) -> Outcome<String>,
) -> Outcome<()> {
    let profiler = start()?;
    let began = Clock::now();
    let mut work = Work::load(args)?;
    for _ in 0..args.iterations {
        work.iteration()?;
    }
    drop(work);
    let took = began.elapsed();
    let resident = most_resident();
    let more = finish(profiler)?;
    let (wall, cpu) = (took.wall.as_secs_f64(), took.cpu.as_secs_f64());
    println!(r#"{{"wall_s": {wall:.6}, "cpu_s": {cpu:.6}, "resident": {resident}{more}}}"#);
    Ok(())
}
