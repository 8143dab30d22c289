//! Command line of the example.

use std::path::PathBuf;

use lexopt::prelude::*;
use lexopt::{Error, Parser};

use super::model::Shape;
use super::options::{DeviceArg, number, positive, unknown};

const HELP: &str = "\
Run attention with a softmax written out, forward and backward, and record its memory.

It is the port of a PyTorch script, to compare the two:
    cargo memtrace diff model.pickle attention.memtrace --by operator

Usage: cargo run --release --example attention -- [OPTIONS]

Options:
  --batch N        sequences [default: 8]
  --sequence N     tokens of a sequence [default: 4096]
  --dim N          elements of a query, a key and a value [default: 16]
  --device DEVICE  where the tensors live: cpu, or cuda:N with --features cuda [default: cpu]
  --out FILE       the recording [default: attention.memtrace in a new folder below target/memtrace]
  --max-entries N  allocations and frees kept in the log [default: 100000]
  -h, --help       print this help
";

pub(crate) struct Args {
    pub(crate) shape: Shape,
    pub(crate) device: DeviceArg,
    pub(crate) out: Option<PathBuf>,
    pub(crate) max_entries: usize,
}

impl Args {
    /// Parses the process's command line; `None` after printing the help.
    pub(crate) fn parse() -> Result<Option<Self>, Error> {
        let mut args = Self { shape: Shape::default(), device: DeviceArg::Cpu, out: None, max_entries: 100_000 };
        let mut parser = Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Short('h') | Long("help") => {
                    print!("{HELP}");
                    return Ok(None);
                }
                Long("batch") => args.shape.batch = positive("batch", &mut parser)?,
                Long("sequence") => args.shape.sequence = positive("sequence", &mut parser)?,
                Long("dim") => args.shape.dim = positive("dim", &mut parser)?,
                Long("device") => args.device = DeviceArg::parse("attention", &mut parser)?,
                Long("out") => args.out = Some(parser.value()?.into()),
                Long("max-entries") => args.max_entries = number("max-entries", &mut parser)?,
                other => return Err(unknown(other)),
            }
        }
        Ok(Some(args))
    }
}
