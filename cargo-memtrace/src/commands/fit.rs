//! `fit`: whether a program fits on GPUs, from a run on a simulated one. Exit code 0 if it does, 1 if not, 3 if undecided.

mod check;
mod free;
mod judge;
mod law;
mod print;
mod search;
mod vary;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use memtrace_core::analysis::{Card, Fit, FitVerdict, cards};

use self::judge::{Judged, doubt_values, judge};
use self::law::Law;
use self::vary::Vary;
use crate::arguments::CargoArgs;
use crate::failure::CommandFailure;
use crate::{moment, output};

/// Say whether a program fits on GPUs, and up to which size
#[derive(Args)]
#[command(
    after_help = "Runs the program on a simulated GPU that is larger than any: what it asks for is exact. What CUDA takes beside that is a range,
whose upper end counts. Without --gpus, a line for each card that is known. If it fits, it runs twice more, with other values
where it reads results: the simulated GPU computes nothing, and a program that then asks for other memory is undecided.

NAME=1,2,4 or NAME=512..32768 (NAME=512..32768/128: multiples of 128) is given to the program as the variable NAME, and in place of
{NAME} in its arguments.
Exit codes: 0 it fits, 1 it does not, 3 undecided; of several cards, all count.

Examples:
  cargo memtrace fit --release --features cuda
  cargo memtrace fit --gpus RTX-4090,A10G,48GiB --release --features cuda
  cargo memtrace fit --gpus RTX-4090 --vary batch=1..256 --features cuda -- --batch {batch}
  cargo memtrace fit --gpus A10G --recording run.memtrace
  cargo memtrace fit --check real.memtrace --features cuda"
)]
pub(crate) struct FitArgs {
    #[command(flatten)]
    cargo: CargoArgs,
    /// The cards, by name (RTX-4090) or by memory as CUDA reports it (48GiB)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    gpus: Vec<String>,
    /// The GPUs of this machine, with what is free there now
    #[arg(long, conflicts_with = "gpus")]
    free: bool,
    /// How many GPUs the program finds; each is judged
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    count: u16,
    /// Run the program with each of these values; of a range, look for the largest that fits
    #[arg(long, value_name = "NAME=VALUES")]
    vary: Option<Vary>,
    /// What other processes and the display use of each card
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = moment::size)]
    reserve: u64,
    /// What is to stay free on each card
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = moment::size)]
    margin: u64,
    /// Judge this recording, and run nothing
    #[arg(long, value_name = "FILE", conflicts_with = "vary")]
    recording: Option<PathBuf>,
    /// Compare the prediction with this recording on a GPU, row by row; exit code 1 if a row was predicted too low
    #[arg(long, value_name = "FILE", conflicts_with_all = ["vary", "free"])]
    check: Option<PathBuf>,
    /// Print a Markdown table of all values that were tried, for a README
    #[arg(long, requires = "vary", conflicts_with = "json")]
    md: bool,
    /// Run this program, and build nothing
    #[arg(long, value_name = "PROGRAM")]
    exec: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Arguments of the program
    #[arg(last = true)]
    args: Vec<OsString>,
}

impl FitArgs {
    /// No card is named.
    fn is_of_all_cards(&self) -> bool {
        self.gpus.is_empty() && !self.free
    }

    fn cards(&self) -> Result<Vec<Card>, CommandFailure> {
        match () {
            () if self.free => free::free_now(),
            () if self.gpus.is_empty() => Ok(cards().collect()),
            () => self.gpus.iter().map(|name| card(name)).collect(),
        }
    }
}

pub(crate) fn run(args: &FitArgs) -> Result<(), CommandFailure> {
    if let Some(measured) = &args.check {
        return check::check(args, measured);
    }
    let cards = args.cards()?;
    let Some(vary) = &args.vary else {
        let mut judged = judge(args, &cards, None)?;
        doubt_values(args, &mut judged, None)?;
        print::verdicts(args, &judged, None, None)?;
        return end(args, &judged);
    };
    let mut tried = Tried { args, vary, cards: &cards, found: BTreeMap::new() };
    let largest: Vec<Option<u64>> = (0..cards.len())
        .map(|card| search::largest(&vary.values, |value| tried.fits(value, card)))
        .collect::<Result<_, _>>()?;
    // The largest value with which it fits on all, or else the smallest.
    let fits_on_all = largest.iter().copied().collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().min());
    let value = fits_on_all.or_else(|| tried.found.keys().next().copied()).unwrap_or_default();
    if args.md {
        output::print_lines(print::matrix(vary, &cards, &tried.found))?;
    }
    let law = Law::through(&tried.peaks());
    let Some(mut judged) = tried.found.remove(&value) else { return Ok(()) };
    doubt_values(args, &mut judged, Some((&vary.name, value)))?;
    if !args.md {
        print::verdicts(args, &judged, Some(value), Some((vary, &largest)))?;
    }
    if let Some(law) = law.filter(|_| !args.json && !args.md) {
        output::print_lines([law.hint(&vary.name)])?;
    }
    end(args, &judged)
}

fn card(name: &str) -> Result<Card, CommandFailure> {
    let by_size = || memtrace_core::parse_bytes(name).ok().map(|memory| Card::of_memory(name, memory));
    Card::named(name).or_else(by_size).ok_or_else(|| {
        let known: Vec<String> = cards().map(|card| card.name.replace(' ', "-")).collect();
        CommandFailure::usage(format!(
            "no card {name:?} is known: give its memory, such as 48GiB, or one of {}",
            known.join(", ")
        ))
    })
}

/// The runs so far, by value.
struct Tried<'a> {
    args: &'a FitArgs,
    vary: &'a Vary,
    cards: &'a [Card],
    found: BTreeMap<u64, Judged>,
}

impl Tried<'_> {
    fn fits(&mut self, value: u64, card: usize) -> Result<bool, CommandFailure> {
        if !self.found.contains_key(&value) {
            let judged = judge(self.args, self.cards, Some((&self.vary.name, value)))?;
            self.found.insert(value, judged);
        }
        Ok(self.found.get(&value).is_some_and(|judged| judged.fits_on(card)))
    }

    /// What was live at the peak of the fullest GPU, by value.
    fn peaks(&self) -> Vec<(u64, u64)> {
        self.found.iter().map(|(value, judged)| (*value, judged.peak())).collect()
    }
}

/// A program that is to run on several cards has to fit on all. Where no card is named, nothing is asked.
fn end(args: &FitArgs, judged: &Judged) -> Result<(), CommandFailure> {
    if args.is_of_all_cards() {
        return Ok(());
    }
    let of = |is: fn(&FitVerdict) -> bool| -> Vec<String> {
        let fits = judged.gpus.iter().flat_map(|gpu| &gpu.fits);
        let mut names: Vec<String> =
            fits.filter(|fit: &&Fit| is(&fit.verdict())).map(|fit| fit.card.name.clone()).collect();
        names.dedup();
        names
    };
    let bad = of(|verdict| matches!(verdict, FitVerdict::DoesNotFit(..)));
    let unknown = of(|verdict| matches!(verdict, FitVerdict::Undecided(..)));
    match (bad.is_empty(), unknown.is_empty()) {
        (false, _) => Err(CommandFailure::Check(vec![format!("does not fit on {}", bad.join(", "))])),
        (_, false) => Err(CommandFailure::Undecided(vec![format!("on {}", unknown.join(", "))])),
        _ => Ok(()),
    }
}
