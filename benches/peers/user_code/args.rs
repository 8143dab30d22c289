//! The command line that all programs share.

use std::path::PathBuf;

use lexopt::prelude::*;

use crate::Outcome;

/// The arguments of every program here.
#[derive(Clone, Debug)]
pub struct Args {
    /// The workload: `resnet`, `llama`, `blocks` or `threads`.
    pub work: String,
    /// Training steps, or texts.
    pub iterations: usize,
    /// Iterations that are measured together.
    pub each: usize,
    /// Images per training step.
    pub batch: usize,
    /// Height and width of an image.
    pub image: usize,
    /// The learning rate; with 0, every step does the same arithmetic.
    pub learning_rate: f64,
    /// Tokens per text.
    pub tokens: usize,
    /// Blocks that are replaced.
    pub blocks: usize,
    /// The profiler's mode; each program has its own values.
    pub record: String,
    /// The profiler's output file.
    pub out: Option<PathBuf>,
}

impl Args {
    /// The arguments of this process.
    ///
    /// # Errors
    /// If one is unknown or has no value.
    pub fn parse() -> Outcome<Self> {
        let mut parser = lexopt::Parser::from_env();
        let mut args = Self {
            work: String::new(),
            iterations: 3,
            each: 1,
            batch: 1,
            image: 96,
            learning_rate: 0.01,
            tokens: 64,
            blocks: 1_000_000,
            record: String::new(),
            out: None,
        };
        while let Some(arg) = parser.next()? {
            match arg {
                Value(work) if ["resnet", "llama", "blocks", "threads"].iter().any(|known| work == *known) => {
                    args.work = work.string()?
                }
                Long("iterations") => args.iterations = parser.value()?.parse()?,
                Long("each") => args.each = parser.value()?.parse()?,
                Long("batch") => args.batch = parser.value()?.parse()?,
                Long("image") => args.image = parser.value()?.parse()?,
                Long("learning-rate") => args.learning_rate = parser.value()?.parse()?,
                Long("tokens") => args.tokens = parser.value()?.parse()?,
                Long("blocks") => args.blocks = parser.value()?.parse()?,
                Long("record") => args.record = parser.value()?.string()?,
                Long("out") => args.out = Some(parser.value()?.into()),
                other => return Err(other.unexpected().into()),
            }
        }
        if args.work.is_empty() { Err("say resnet, llama, blocks or threads".into()) } else { Ok(args) }
    }
}
