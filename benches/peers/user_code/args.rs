//! The command line that all programs have.

use std::path::PathBuf;

use lexopt::prelude::*;

use crate::Outcome;

/// What to do, and under which options of the profiler.
#[derive(Clone, Debug)]
pub struct Args {
    /// `resnet`, `llama` or `blocks`.
    pub work: String,
    /// Training steps, or texts.
    pub iterations: usize,
    /// Images in a training step.
    pub batch: usize,
    /// Their height and width.
    pub image: usize,
    /// How far a training step goes; 0: all steps do the same arithmetic.
    pub learning_rate: f64,
    /// Tokens in a text.
    pub tokens: usize,
    /// Blocks that are live at once.
    pub blocks: usize,
    /// What the profiler records, in its own words.
    pub record: String,
    /// Where its file goes.
    pub out: Option<PathBuf>,
}

impl Args {
    /// The command line of this process.
    pub fn parse() -> Outcome<Self> {
        let mut parser = lexopt::Parser::from_env();
        let mut args = Self {
            work: String::new(),
            iterations: 3,
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
                Value(work) if ["resnet", "llama", "blocks"].iter().any(|known| work == *known) => {
                    args.work = work.string()?
                }
                Long("iterations") => args.iterations = parser.value()?.parse()?,
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
        if args.work.is_empty() { Err("say resnet, llama or blocks".into()) } else { Ok(args) }
    }
}
