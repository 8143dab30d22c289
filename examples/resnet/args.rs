//! Command line of the example.

use std::path::PathBuf;

use lexopt::prelude::*;
use lexopt::{Error, Parser};

use super::options::{DeviceArg, number, positive, unknown};

const HELP: &str = "\
Train ResNet-50 on a batch of random images and profile its memory.

Each iteration runs forward, backward and one step of SGD with momentum on the CPU or a GPU, while
memtrace records which source line holds how much memory. The report shows the memory at the peak.

Usage: cargo run --release --example resnet -- [OPTIONS]

Options:
  --iterations N   training iterations [default: 5]
  --batch N        images per iteration [default: 1]
  --image N        height and width of an image in pixels, a multiple of 32 [default: 224]
  --device DEVICE  where the tensors live: cpu, or cuda:N with --features cuda [default: cpu]
  --out DIR        folder for the files [default: a new one below target/memtrace]
  --max-entries N  allocations and frees kept in the log [default: 100000]
  --min-size SIZE  smallest allocation recorded, such as 512, 64KiB or 1MiB [default: 64KiB]
  --sample-interval SIZE
                   record a sample of smaller allocations, on average one per SIZE bytes, such as
                   512KiB; figures are then estimates [default: off; implies --min-size 0]
  -h, --help       print this help

Examples:
  cargo run --release --example resnet -- --iterations 1
  cargo run --release --example resnet -- --batch 2 --image 96 --out /tmp/resnet
  cargo run --release --example resnet --features cuda -- --device cuda:0
";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Args {
    /// Training iterations, at least 1.
    pub(crate) iterations: usize,
    /// Images per iteration, at least 1.
    pub(crate) batch: usize,
    pub(crate) device: DeviceArg,
    /// Folder for the recording's files; without it there are none.
    pub(crate) out: Option<PathBuf>,
    /// Limit of the log, as typed; the library checks it.
    pub(crate) max_entries: usize,
    /// Threshold, as typed; the library parses it.
    pub(crate) min_size: Option<String>,
    /// Sampling interval for smaller blocks, as typed; the library parses it.
    pub(crate) sample_interval: Option<String>,
    /// Height and width of an image in pixels, a positive multiple of 32.
    pub(crate) image: usize,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            iterations: 5,
            batch: 1,
            device: DeviceArg::Cpu,
            out: None,
            max_entries: 100_000,
            min_size: None,
            sample_interval: None,
            image: 224,
        }
    }
}

impl Args {
    /// Parses the process's command line; `None` after printing the help.
    ///
    /// # Errors
    /// A message for the user that names the option and what it accepts.
    pub(crate) fn parse() -> Result<Option<Self>, Error> {
        let args = Self::from_parser(Parser::from_env())?;
        if args.is_none() {
            print!("{HELP}");
        }
        Ok(args)
    }

    /// `None` asks for help.
    fn from_parser(mut parser: Parser) -> Result<Option<Self>, Error> {
        let mut args = Self::default();
        while let Some(arg) = parser.next()? {
            let flag = match arg {
                Short('h') | Long("help") => return Ok(None),
                Long(flag) => flag.to_owned(),
                other => return Err(unknown(other)),
            };
            args.set(&flag, &mut parser)?;
        }
        Ok(Some(args))
    }

    /// Sets the option `flag` to the next value in `parser`.
    fn set(&mut self, flag: &str, parser: &mut Parser) -> Result<(), Error> {
        match flag {
            "iterations" => self.iterations = positive(flag, parser)?,
            "batch" => self.batch = positive(flag, parser)?,
            "image" => self.image = image_size(flag, parser)?,
            "device" => self.device = DeviceArg::parse("resnet", parser)?,
            "out" => self.out = Some(parser.value()?.into()),
            "max-entries" => self.max_entries = number(flag, parser)?,
            "min-size" => self.min_size = Some(parser.value()?.string()?),
            "sample-interval" => self.sample_interval = Some(parser.value()?.string()?),
            _ => return Err(unknown(Long(flag))),
        }
        Ok(())
    }
}

/// The next value as an image size that can be halved five times.
fn image_size(flag: &str, parser: &mut Parser) -> Result<usize, Error> {
    match number(flag, parser)? {
        size if size > 0 && size % 32 == 0 => Ok(size),
        _ => Err(format!("--{flag} must be a positive multiple of 32").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Args>, String> {
        let words = line.split_whitespace();
        Args::from_parser(Parser::from_args(words)).map_err(|error| error.to_string())
    }

    #[test]
    fn every_flag_sets_its_field() {
        let line = "--iterations 2 --batch=3 --image 64 --device cpu --out a/b --max-entries 0";
        let args = parse(&format!("{line} --min-size 1MiB --sample-interval 2MiB")).unwrap().unwrap();
        let numbers = [args.iterations, args.batch, args.image, args.max_entries];
        assert_eq!(numbers, [2, 3, 64, 0]);
        assert_eq!(args.out, Some("a/b".into()));
        assert_eq!((args.min_size.as_deref(), args.sample_interval.as_deref()), (Some("1MiB"), Some("2MiB")));
        assert_eq!(parse(""), Ok(Some(Args::default())));
    }

    #[test]
    fn help_names_every_flag() {
        assert_eq!(["--batch 2 -h", "--help"].map(parse), [Ok(None), Ok(None)]);
        for flag in "iterations batch image device out max-entries min-size sample-interval".split(' ') {
            assert!(HELP.contains(&format!("  --{flag} ")), "{flag}");
        }
    }

    #[test]
    fn only_builds_with_cuda_accept_cuda_devices() {
        for (name, ordinal) in [("cuda", 0), ("cuda:3", 3)] {
            let device = parse(&format!("--device {name}")).map(|args| args.unwrap().device);
            match device {
                Ok(device) => assert!(cfg!(feature = "cuda") && device == DeviceArg::Cuda(ordinal)),
                Err(error) => assert!(error.ends_with(&format!("--features cuda -- --device {name}")), "{error}"),
            }
        }
    }

    #[test]
    fn errors_name_the_flag_and_what_it_accepts() {
        let cases = "\
--iterations 0 => --iterations must be at least 1
--batch 0 => --batch must be at least 1
--batch -1 => --batch takes a whole number, not '-1'
--image 100 => --image must be a positive multiple of 32
--image 0 => --image must be a positive multiple of 32
--max-entries 1e6 => --max-entries takes a whole number, not '1e6'
--device tpu => --device accepts cpu or cuda:N, such as cuda:0, not 'tpu'
--device cuda:x => --device accepts cpu or cuda:N, such as cuda:0, not 'cuda:x'
--epochs 3 => invalid option '--epochs'; try --help
-x => invalid option '-x'; try --help
resnet => unexpected argument \"resnet\"; try --help
--out => missing argument for option '--out'";
        for (line, message) in cases.lines().map(|case| case.split_once(" => ").unwrap()) {
            assert_eq!(parse(line), Err(message.to_owned()), "{line}");
        }
    }
}
