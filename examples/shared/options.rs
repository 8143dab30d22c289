//! What the examples' command lines have in common.

use candle_core::Device;
use lexopt::prelude::*;
use lexopt::{Arg, Error, Parser};

/// Where the tensors live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceArg {
    /// Main memory.
    Cpu,
    /// The GPU of that ordinal.
    Cuda(usize),
}

impl DeviceArg {
    /// The next value as a device; `example` stands in the advice for builds without CUDA.
    pub(crate) fn parse(example: &str, parser: &mut Parser) -> Result<Self, Error> {
        let name = parser.value()?.string()?;
        let ordinal = if name == "cuda" { Some(0) } else { name.strip_prefix("cuda:").and_then(|n| n.parse().ok()) };
        match ordinal {
            None if name == "cpu" => Ok(Self::Cpu),
            None => Err(format!("--device accepts cpu or cuda:N, such as cuda:0, not '{name}'").into()),
            Some(ordinal) if cfg!(feature = "cuda") => Ok(Self::Cuda(ordinal)),
            Some(_) => Err(format!(
                "this build has no CUDA; build it in: \
                 cargo run --release --example {example} --features cuda -- --device {name}"
            )
            .into()),
        }
    }

    /// candle's own device, with recording in place.
    pub(crate) fn open(self) -> candle_core::Result<Device> {
        match self {
            Self::Cpu => Ok(memtrace::candle::cpu()),
            Self::Cuda(ordinal) => memtrace::candle::cuda(ordinal),
        }
    }
}

/// Begins to record and says what. Of the smallest size that is recorded, the second is for want of the first.
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
    eprintln!("recording a sample of one in {interval}, and blocks of {interval} or more; figures are estimates");
    Ok(session)
}

/// The error for an argument that the example does not have.
pub(crate) fn unknown(arg: Arg<'_>) -> Error {
    format!("{}; try --help", arg.unexpected()).into()
}

/// The next value as a whole number.
pub(crate) fn number(flag: &str, parser: &mut Parser) -> Result<usize, Error> {
    let text = parser.value()?.string()?;
    let error = format!("--{flag} takes a whole number, not '{text}'");
    text.parse().or(Err(error.into()))
}

/// The next value as a whole number above zero.
pub(crate) fn positive(flag: &str, parser: &mut Parser) -> Result<usize, Error> {
    match number(flag, parser)? {
        0 => Err(format!("--{flag} must be at least 1").into()),
        number => Ok(number),
    }
}
