//! Command line of the example.

use std::ffi::OsString;
use std::path::PathBuf;

use candle_core::DType;
use lexopt::prelude::*;
use lexopt::{Error, Parser};

use super::options::{DeviceArg, number, positive, unknown};

const HELP: &str = "\
Generate text with candle's Llama and profile its memory.

One pass processes the prompt (prefill); each further pass generates a token (decode) and adds its
keys and values to the KV cache. memtrace records which line and which part of the model holds the
memory, the latter by the model's tracing spans. The output compares the measured bytes with theory:
weights, tables, and the growth per token.

Usage: cargo run --release --example llama -- [OPTIONS]

Workload:
  --tokens N       tokens to decode, at least 3 [default: 64]
  --prompt N       tokens of an artificial prompt [default: 16]
  --layers N       layers of a small Llama with random weights [default: 8]
  --hidden N       its width, a multiple of 128 [default: 512]
  --weights FILE   weights of a real Llama, a safetensors file; repeat for more files
  --config FILE    its config.json
  --dtype TYPE     type of weights and KV cache: f32, f16 or bf16 [default: f32]
  --device DEVICE  where the tensors live: cpu, or cuda:N with --features cuda [default: cpu]
  --bug varmap     run a second time with variables of a VarMap as weights: every operation then
                   keeps its arguments for a backward pass that never runs, and the KV cache keeps
                   the last operation
Recording:
  --out DIR        folder for the files [default: a new one below target/memtrace]
  --max-entries N  allocations and frees kept in the log [default: 100000]
  --min-size SIZE  smallest allocation recorded, such as 512, 64KiB or 1MiB [default: 1KiB]
  --sample-interval SIZE
                   record a sample of smaller allocations, on average one per SIZE bytes, such as
                   512KiB; figures are then estimates [default: off; implies --min-size 0]
  -h, --help       print this help

On the CPU, RAYON_NUM_THREADS=1 makes runs equal to the byte. If the variable is set, candle does
not read /proc/cpuinfo before each matrix product.

Examples:
  cargo run --release --example llama
  cargo run --release --example llama -- --bug varmap
  cargo run --release --example llama -- --weights model.safetensors --config config.json
  cargo run --release --example llama --features cuda -- --device cuda:0 --dtype bf16
";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Args {
    /// Tokens to decode, at least 3: the first does not count, and a median needs two.
    pub(crate) tokens: usize,
    /// Tokens of the prompt, at least 1.
    pub(crate) prompt: usize,
    /// Layers of the small model.
    pub(crate) layers: Option<usize>,
    /// Width of the small model, a positive multiple of 128.
    pub(crate) hidden: Option<usize>,
    /// Files with weights; need `config`.
    pub(crate) weights: Vec<PathBuf>,
    /// The path of config.json.
    pub(crate) config: Option<PathBuf>,
    /// Type of weights and KV cache.
    pub(crate) dtype: DType,
    /// Whether to run a second time with variables as weights.
    pub(crate) varmap: bool,
    pub(crate) device: DeviceArg,
    /// Folder for the recording's files.
    pub(crate) out: Option<PathBuf>,
    /// Limit of the log, as typed; the library checks it.
    pub(crate) max_entries: usize,
    /// Threshold, as typed; the library parses it.
    pub(crate) min_size: Option<String>,
    /// Sampling interval for smaller blocks, as typed; the library parses it.
    pub(crate) sample_interval: Option<String>,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            tokens: 64,
            prompt: 16,
            layers: None,
            hidden: None,
            weights: Vec::new(),
            config: None,
            dtype: DType::F32,
            varmap: false,
            device: DeviceArg::Cpu,
            out: None,
            max_entries: 100_000,
            min_size: None,
            sample_interval: None,
        }
    }
}

impl Args {
    /// Parses a command line without the program's name; `None` after printing the help.
    ///
    /// # Errors
    /// A message for the user that names the option and what it accepts.
    pub(crate) fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Option<Self>, Error> {
        let line: Vec<OsString> = line.into_iter().collect();
        let args = Self::from_parser(Parser::from_args(line))?;
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
        args.checked().map(Some)
    }

    /// Sets the option `flag` to the next value in `parser`.
    fn set(&mut self, flag: &str, parser: &mut Parser) -> Result<(), Error> {
        match flag {
            "tokens" => self.tokens = positive(flag, parser)?,
            "prompt" => self.prompt = positive(flag, parser)?,
            "layers" => self.layers = Some(positive(flag, parser)?),
            "hidden" => self.hidden = Some(width(flag, parser)?),
            "weights" => self.weights.push(parser.value()?.into()),
            "config" => self.config = Some(parser.value()?.into()),
            "dtype" => self.dtype = dtype(&parser.value()?.string()?)?,
            "bug" => self.varmap = bug(&parser.value()?.string()?)?,
            "device" => self.device = DeviceArg::parse("llama", parser)?,
            "out" => self.out = Some(parser.value()?.into()),
            "max-entries" => self.max_entries = number(flag, parser)?,
            "min-size" => self.min_size = Some(parser.value()?.string()?),
            "sample-interval" => self.sample_interval = Some(parser.value()?.string()?),
            _ => return Err(unknown(Long(flag))),
        }
        Ok(())
    }

    /// Checks combinations of options.
    fn checked(self) -> Result<Self, Error> {
        let small = self.layers.is_some() || self.hidden.is_some();
        match &self.config {
            _ if self.tokens < 3 => Err("--tokens must be at least 3".into()),
            None if !self.weights.is_empty() => Err("--weights needs --config as well".into()),
            Some(_) if self.weights.is_empty() => Err("--config needs --weights as well".into()),
            Some(_) if small => Err("--layers and --hidden are for random weights; leave them out".into()),
            Some(_) if self.varmap => Err("--bug varmap uses random weights; leave out --weights".into()),
            _ => Ok(self),
        }
    }
}

/// The next value as a width: a multiple of 128, which is two heads of 64 values per head of the KV cache.
fn width(flag: &str, parser: &mut Parser) -> Result<usize, Error> {
    match number(flag, parser)? {
        size if size > 0 && size % 128 == 0 => Ok(size),
        _ => Err(format!("--{flag} must be a positive multiple of 128").into()),
    }
}

fn dtype(name: &str) -> Result<DType, Error> {
    match name {
        "f32" => Ok(DType::F32),
        "f16" => Ok(DType::F16),
        "bf16" => Ok(DType::BF16),
        _ => Err(format!("--dtype accepts f32, f16 or bf16, not '{name}'").into()),
    }
}

fn bug(name: &str) -> Result<bool, Error> {
    if name == "varmap" { Ok(true) } else { Err(format!("--bug accepts varmap, not '{name}'").into()) }
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
        let small = "--tokens 5 --prompt=7 --layers 2 --hidden 256 --dtype bf16 --bug varmap --device cpu";
        let args = parse(&format!("{small} --out a/b --max-entries 9 --min-size 1MiB --sample-interval 2MiB"))
            .unwrap()
            .unwrap();
        let expected = Args {
            tokens: 5,
            prompt: 7,
            layers: Some(2),
            hidden: Some(256),
            dtype: DType::BF16,
            varmap: true,
            out: Some("a/b".into()),
            max_entries: 9,
            min_size: Some("1MiB".into()),
            sample_interval: Some("2MiB".into()),
            ..Args::default()
        };
        assert_eq!(args, expected);
        let args = parse("--weights a --weights b --config c").unwrap().unwrap();
        assert_eq!((args.weights, args.config), (vec!["a".into(), "b".into()], Some("c".into())));
        assert_eq!(parse(""), Ok(Some(Args::default())));
    }

    #[test]
    fn help_names_every_flag() {
        assert_eq!(["--tokens 3 -h", "--help"].map(parse), [Ok(None), Ok(None)]);
        let flags =
            "tokens prompt layers hidden weights config dtype bug device out max-entries min-size sample-interval";
        for flag in flags.split(' ') {
            assert!(HELP.contains(&format!("  --{flag} ")), "{flag}");
        }
    }

    #[test]
    fn errors_name_the_flag_and_what_it_accepts() {
        let cases = "\
--tokens 2 => --tokens must be at least 3
--prompt 0 => --prompt must be at least 1
--hidden 100 => --hidden must be a positive multiple of 128
--dtype f64 => --dtype accepts f32, f16 or bf16, not 'f64'
--bug leak => --bug accepts varmap, not 'leak'
--device tpu => --device accepts cpu or cuda:N, such as cuda:0, not 'tpu'
--weights a => --weights needs --config as well
--config a => --config needs --weights as well
--config a --weights b --layers 3 => --layers and --hidden are for random weights; leave them out
--config a --weights b --bug varmap => --bug varmap uses random weights; leave out --weights
--epochs 3 => invalid option '--epochs'; try --help";
        for (line, message) in cases.lines().map(|case| case.split_once(" => ").unwrap()) {
            assert_eq!(parse(line), Err(message.to_owned()), "{line}");
        }
    }
}
