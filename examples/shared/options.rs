//! Command-line options that the examples share.

use candle_core::Device;
use lexopt::prelude::*;
use lexopt::{Arg, Error, Parser};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceArg {
    Cpu,
    /// The GPU with this ordinal.
    Cuda(usize),
}

impl DeviceArg {
    /// The next value as a device. The advice for builds without CUDA names `example`.
    pub(crate) fn parse(example: &str, parser: &mut Parser) -> Result<Self, Error> {
        let name = parser.value()?.string()?;
        let ordinal = if name == "cuda" { Some(0) } else { name.strip_prefix("cuda:").and_then(|n| n.parse().ok()) };
        match ordinal {
            None if name == "cpu" => Ok(Self::Cpu),
            None => Err(format!("--device accepts cpu or cuda:N, such as cuda:0, not '{name}'").into()),
            Some(ordinal) if cfg!(feature = "cuda") => Ok(Self::Cuda(ordinal)),
            Some(_) => Err(format!(
                "this build has no CUDA; enable it: \
                 cargo run --release --example {example} --features cuda -- --device {name}"
            )
            .into()),
        }
    }

    /// candle's device, with recording.
    pub(crate) fn open(self) -> candle_core::Result<Device> {
        match self {
            Self::Cpu => Ok(memtrace::candle::cpu()),
            Self::Cuda(ordinal) => memtrace::candle::cuda(ordinal),
        }
    }
}

/// Starts recording and prints the settings. `min_size` overrides `default_min_size`.
pub(crate) fn record(
    max_entries: usize,
    (min_size, default): (Option<&str>, &str),
    sample_interval: Option<&str>,
) -> Result<memtrace::Session, memtrace::Error> {
    let builder = memtrace::builder().max_entries(max_entries);
    let Some(interval) = sample_interval else {
        let smallest = min_size.unwrap_or(default);
        let session = builder.min_size(smallest).start()?;
        eprintln!("recording blocks of {smallest} or more; --min-size changes that");
        return Ok(session);
    };
    let builder = builder.sample_interval(interval);
    let session = if let Some(smallest) = min_size { builder.min_size(smallest).start() } else { builder.start() }?;
    eprintln!(
        "recording one sample per {interval} of smaller blocks, and all blocks of {interval} or more; figures are estimates"
    );
    Ok(session)
}

/// The error for an unknown argument.
pub(crate) fn unknown(arg: Arg<'_>) -> Error {
    format!("{}; try --help", arg.unexpected()).into()
}

/// The next value as an integer.
pub(crate) fn number(flag: &str, parser: &mut Parser) -> Result<usize, Error> {
    let text = parser.value()?.string()?;
    let error = format!("--{flag} takes a whole number, not '{text}'");
    text.parse().or(Err(error.into()))
}

/// The next value as a positive integer.
pub(crate) fn positive(flag: &str, parser: &mut Parser) -> Result<usize, Error> {
    match number(flag, parser)? {
        0 => Err(format!("--{flag} must be at least 1").into()),
        number => Ok(number),
    }
}
