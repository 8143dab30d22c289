//! The work of the examples `resnet` and `llama`, without what they say and write, and very many small blocks, as
//! programs that differ in their allocator only.
//!
//! `scripts/bench-peers` builds and runs them; its `--help` says what for.

mod args;
mod blocks;
mod clock;
mod llama;
mod resnet;

use std::error::Error;

pub use args::Args;
pub use clock::{Clock, most_resident};

/// What everything here returns.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// Work that can be done again and again.
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
            _ => Box::new(llama::Decode::new(args.tokens)?),
        }))
    }

    /// A training step, a text of `--tokens` tokens, or `--blocks` blocks made, replaced and freed.
    pub fn iteration(&mut self) -> Outcome<()> {
        Ok(self.0.iteration()?)
    }
}

/// Does the whole work between `start` and `finish`, and prints what it took as a line of JSON, to which `finish`
/// adds fields.
///
/// The profiler's own writing is outside of what is timed here; who measures the process sees it.
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
