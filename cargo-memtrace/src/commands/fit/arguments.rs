//! Arguments of `fit`, and the cards that they name.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use memtrace_core::analysis::{Card, cards};

use super::free;
use super::vary::Vary;
use crate::arguments::CargoArgs;
use crate::failure::CommandFailure;
use crate::moment;

/// Say whether a program fits on GPUs, and up to which size
#[derive(Args)]
#[command(
    after_help = "Runs the program on a simulated GPU that is larger than any card: the memory that it requests is exact. What CUDA takes in addition is
a range, whose upper end counts. Without --gpus, prints a line for each known card. If the program fits, it runs twice more, with values
other than zeros where it reads results: the simulated GPU computes nothing. A program that then requests other memory is undecided.

NAME=1,2,4 or NAME=512..32768 (NAME=512..32768/128: multiples of 128) is given to the program as the variable NAME, and in place of
{NAME} in its arguments.
Exit codes: 0 it fits, 1 it does not, 2 wrong use or unreadable input, 3 undecided; of several cards, all count.

Examples:
  cargo memtrace fit --release --features cuda
  cargo memtrace fit --gpus RTX-4090,A10G,48GiB --release --features cuda
  cargo memtrace fit --gpus RTX-4090 --vary batch=1..256 --features cuda -- --batch {batch}
  cargo memtrace fit --gpus A10G --recording run.memtrace
  cargo memtrace fit --unified --gpus 128GiB --features cuda
  cargo memtrace fit --check real.memtrace --features cuda"
)]
pub(crate) struct FitArgs {
    #[command(flatten)]
    pub(super) cargo: CargoArgs,
    /// The cards, by name (RTX-4090) or by memory as CUDA reports it (48GiB)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(super) gpus: Vec<String>,
    /// Judge the GPUs of this machine, with the memory that is free now
    #[arg(long, conflicts_with = "gpus")]
    pub(super) free: bool,
    /// The GPU's memory is the host's (DGX Spark, Jetson): sizes are all that the host has, and the process's own memory counts
    #[arg(long, conflicts_with = "check")]
    pub(super) unified: bool,
    /// How many GPUs the program finds; each is judged
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(super) count: u16,
    /// Run the program with each of these values; of a range, look for the largest that fits
    #[arg(long, value_name = "NAME=VALUES")]
    pub(super) vary: Option<Vary>,
    /// Memory of each card that other processes and the display use
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = moment::size)]
    pub(super) reserve: u64,
    /// Memory that must stay free on each card
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = moment::size)]
    pub(super) margin: u64,
    /// Judge this recording, and run nothing
    #[arg(long, value_name = "FILE", conflicts_with = "vary")]
    pub(super) recording: Option<PathBuf>,
    /// Compare the prediction with this recording on a GPU, row by row; exit code 1 if a row was predicted too low
    #[arg(long, value_name = "FILE", conflicts_with_all = ["vary", "free"])]
    pub(super) check: Option<PathBuf>,
    /// Print a Markdown table of all values that were tried, for a README
    #[arg(long, requires = "vary", conflicts_with = "json")]
    pub(super) md: bool,
    /// Run this program, and build nothing
    #[arg(long, value_name = "PROGRAM")]
    pub(super) exec: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Arguments of the program
    #[arg(last = true)]
    pub(super) args: Vec<OsString>,
}

impl FitArgs {
    /// No card is named.
    pub(super) fn is_of_all_cards(&self) -> bool {
        self.gpus.is_empty() && !self.free
    }

    pub(super) fn cards(&self) -> Result<Vec<Card>, CommandFailure> {
        match () {
            () if self.free => free::free_now(),
            () if self.gpus.is_empty() => Ok(cards().collect()),
            () => self.gpus.iter().map(|name| card(name)).collect(),
        }
    }
}

pub(crate) fn card(name: &str) -> Result<Card, CommandFailure> {
    let by_size = || memtrace_core::parse_bytes(name).ok().map(|memory| Card::of_memory(name, memory));
    Card::named(name).or_else(by_size).ok_or_else(|| {
        let known: Vec<String> = cards().map(|card| card.name.replace(' ', "-")).collect();
        CommandFailure::usage(format!(
            "no card {name:?} is known: give its memory, such as 48GiB, or one of {}",
            known.join(", ")
        ))
    })
}
