//! `fit`: whether a program fits on GPUs, from a run on a simulated one. Exit code 0 if it does, 1 if not, 3 if undecided.

mod search;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use memtrace_core::analysis::{Card, Fit, FitVerdict, cards};
use memtrace_core::report::{Report, fit_line, fit_section};
use memtrace_core::snapshot::{Device, SnapshotData};
use memtrace_core::{Bytes, Recording};
use serde_json::{Value, json};

use super::run::{self, RunArgs};
use crate::arguments::CargoArgs;
use crate::failure::CommandFailure;
use crate::{input, moment, output};

/// Say whether a program fits on GPUs, and up to which size
#[derive(Args)]
#[command(
    after_help = "Runs the program on a simulated GPU that is larger than any: what it asks for is exact. What CUDA takes beside that is a range,
whose upper end counts. Without --gpus, a line for each card that is known.

NAME=1,2,4 or NAME=512..32768 (NAME=512..32768/128: multiples of 128) is given to the program as the variable NAME, and in place of
{NAME} in its arguments.
Exit codes: 0 it fits, 1 it does not, 3 undecided; of several cards, all count.

Examples:
  cargo memtrace fit --release --features cuda
  cargo memtrace fit --gpus RTX-4090,A10G,48GiB --release --features cuda
  cargo memtrace fit --gpus RTX-4090 --vary batch=1..256 --features cuda -- --batch {batch}
  cargo memtrace fit --gpus A10G --recording run.memtrace"
)]
pub(crate) struct FitArgs {
    #[command(flatten)]
    cargo: CargoArgs,
    /// The cards, by name (RTX-4090) or by memory as CUDA reports it (48GiB)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    gpus: Vec<String>,
    /// Run the program with each of these values; of a range, look for the largest that fits
    #[arg(long, value_name = "NAME=VALUES", value_parser = vary)]
    vary: Option<Vary>,
    /// What other processes and the display use of each card
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = moment::size)]
    reserve: u64,
    /// Judge this recording, and run nothing
    #[arg(long, value_name = "FILE", conflicts_with = "vary")]
    recording: Option<PathBuf>,
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

/// What varies from run to run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Vary {
    name: String,
    values: VaryValues,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum VaryValues {
    List(Vec<u64>),
    Range { from: u64, to: u64, step: u64 },
}

fn vary(text: &str) -> Result<Vary, String> {
    let wrong = || "write NAME=1,2,4 or NAME=512..32768 or, in multiples of 128, NAME=512..32768/128".to_owned();
    let (name, values) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0).ok_or_else(wrong);
    let values = match values.split_once("..") {
        Some((from, to)) => {
            let (to, step) = to.split_once('/').unwrap_or((to, "1"));
            VaryValues::Range { from: number(from)?, to: number(to)?, step: number(step)? }
        }
        None => VaryValues::List(values.split(',').map(number).collect::<Result<_, _>>()?),
    };
    match values {
        VaryValues::Range { from, to, .. } if from > to => Err(wrong()),
        values => Ok(Vary { name: name.to_owned(), values }),
    }
}

/// A simulated GPU takes addresses only, so this is more than any card has.
const MEMORY: &str = "1TiB";

/// The verdicts for one value of what varies, and what the program did.
struct Judged {
    fits: Vec<Fit>,
    answer: Vec<String>,
}

pub(crate) fn run(args: &FitArgs) -> Result<(), CommandFailure> {
    let asked: Vec<Card> = args.gpus.iter().map(|name| card(name)).collect::<Result<_, _>>()?;
    let cards = if asked.is_empty() { cards().collect() } else { asked.clone() };
    let Some(vary) = &args.vary else {
        let judged = judge(args, &cards, None)?;
        print(args, &judged, None, &[])?;
        return if asked.is_empty() { Ok(()) } else { end(&judged.fits) };
    };
    let mut tried = Tried { args, vary, cards: &cards, found: BTreeMap::new() };
    let largest: Vec<Option<u64>> = (0..cards.len())
        .map(|card| search::largest(&vary.values, |value| tried.fits(value, card)))
        .collect::<Result<_, _>>()?;
    // The largest value with which it fits on all, or else the smallest.
    let fits_on_all = largest.iter().copied().collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().min());
    let value = fits_on_all.or_else(|| tried.found.keys().next().copied()).unwrap_or_default();
    if args.md {
        output::print_lines(matrix(vary, &cards, &tried.found))?;
    }
    let Some(judged) = tried.found.remove(&value) else { return Ok(()) };
    if !args.json && !args.md {
        output::print_lines([format!("For {}={value}:", vary.name)])?;
    }
    if !args.md {
        print(args, &judged, Some(value), &largest)?;
    }
    if asked.is_empty() { Ok(()) } else { end(&judged.fits) }
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
        let judged = self.found.get(&value).and_then(|judged| judged.fits.get(card));
        Ok(judged.is_some_and(|fit| matches!(fit.verdict(), FitVerdict::Fits(..))))
    }
}

/// Runs the program, or reads its recording.
fn judge(args: &FitArgs, cards: &[Card], varied: Option<(&str, u64)>) -> Result<Judged, CommandFailure> {
    match &args.recording {
        Some(file) => of_recording(args, cards, &input::read(Some(file))?.data),
        None => {
            let folder =
                tempfile::tempdir().map_err(|error| CommandFailure::usage(format!("no temporary folder: {error}")))?;
            let file = folder.path().join("fit.memtrace");
            record(args, &file, varied)?;
            of_recording(args, cards, &input::read(Some(&file))?.data)
        }
    }
}

fn of_recording(args: &FitArgs, cards: &[Card], data: &SnapshotData) -> Result<Judged, CommandFailure> {
    let recording = Recording::new(data);
    let device = recording.device_or_main(None).filter(|device| matches!(device.device, Device::Cuda(_)));
    let device = device.ok_or_else(|| CommandFailure::usage("the program used no GPU memory"))?;
    if let Some(why) = Fit::doubt(device) {
        return Err(CommandFailure::Undecided(vec![format!("the recording does not say what is needed: {why}")]));
    }
    let fits = cards.iter().map(|card| Fit::of(device, card.clone(), args.reserve)).collect();
    Ok(Judged { fits, answer: Report::first_look(data)?.answer })
}

fn record(args: &FitArgs, file: &Path, varied: Option<(&str, u64)>) -> Result<(), CommandFailure> {
    let filled = |argument: &OsString| match (argument.to_str(), varied) {
        (Some(text), Some((name, value))) => text.replace(&format!("{{{name}}}"), &value.to_string()).into(),
        _ => argument.clone(),
    };
    let run = RunArgs {
        cargo: args.cargo.clone(),
        simulate: Some(MEMORY.to_owned()),
        out: Some(file.to_owned()),
        exec: args.exec.clone(),
        args: args.args.iter().map(filled).collect(),
        variables: varied.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect(),
        ..RunArgs::default()
    };
    match run::record(&run, file)? {
        true => Ok(()),
        false => {
            let with = varied.map_or(String::new(), |(name, value)| format!(" with {name}={value}"));
            Err(CommandFailure::usage(format!("the program failed on the simulated GPU{with}; its messages are above")))
        }
    }
}

/// The verdicts first; then, of each card that was asked for, what is needed there.
fn print(args: &FitArgs, judged: &Judged, value: Option<u64>, largest: &[Option<u64>]) -> Result<(), CommandFailure> {
    if args.json {
        let name = args.vary.as_ref().map(|vary| &vary.name);
        let cards: Vec<Value> = judged.fits.iter().enumerate().map(|(at, fit)| json_of(fit, largest.get(at))).collect();
        let value = json!({ "version": 1, "varied": name, "value": value, "answer": judged.answer, "cards": cards });
        return output::print_json(format!("{value:#}\n"));
    }
    let line = |(at, fit): (usize, &Fit)| match (largest.get(at), &args.vary) {
        (Some(Some(value)), Some(vary)) => format!("{}; largest {}: {value}", fit_line(fit), vary.name),
        (Some(None), Some(vary)) => format!("{}; no {} that was tried fits", fit_line(fit), vary.name),
        _ => fit_line(fit),
    };
    output::print_lines(judged.fits.iter().enumerate().map(line))?;
    let report = Report {
        answer: judged.answer.clone(),
        sections: judged.fits.iter().take(if args.gpus.is_empty() { 0 } else { usize::MAX }).map(fit_section).collect(),
        ..Report::default()
    };
    output::print_report(&report)
}

/// A Markdown table: a row for each value that was tried, a column for each card.
fn matrix(vary: &Vary, cards: &[Card], found: &BTreeMap<u64, Judged>) -> Vec<String> {
    let row = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    let heads = cards.iter().map(|card| format!("{} ({})", card.name, Bytes(card.memory)));
    let cell = |fit: &Fit| match fit.verdict() {
        FitVerdict::Fits(least, _) => format!("fits, {} spare", Bytes(least)),
        FitVerdict::DoesNotFit(least, _) => format!("no, {} short", Bytes(least)),
        FitVerdict::Undecided(..) => "undecided".to_owned(),
    };
    let line = |(value, judged): (&u64, &Judged)| {
        row([value.to_string()].into_iter().chain(judged.fits.iter().map(cell)).collect())
    };
    let head = row([vary.name.clone()].into_iter().chain(heads).collect());
    [head, format!("|{}", "--:|".repeat(cards.len() + 1))].into_iter().chain(found.iter().map(line)).collect()
}

fn json_of(fit: &Fit, largest: Option<&Option<u64>>) -> Value {
    let (verdict, least, most) = match fit.verdict() {
        FitVerdict::Fits(least, most) => ("fits", i128::from(least), i128::from(most)),
        FitVerdict::DoesNotFit(least, most) => ("does not fit", -i128::from(most), -i128::from(least)),
        FitVerdict::Undecided(spare, short) => ("undecided", -i128::from(short), i128::from(spare)),
    };
    let row = |row: &memtrace_core::analysis::NeedRow| json!({ "what": row.what, "low_bytes": row.low, "high_bytes": row.high, "known_by": row.known_by });
    json!({
        "card": fit.card.name,
        "memory_bytes": fit.card.memory,
        "verdict": verdict,
        "spare_bytes": [least as i64, most as i64],
        "largest": largest,
        "rows": fit.rows.iter().map(row).collect::<Vec<_>>(),
    })
}

/// A program that is to run on several cards has to fit on all.
fn end(fits: &[Fit]) -> Result<(), CommandFailure> {
    let of = |is: fn(&FitVerdict) -> bool| -> Vec<String> {
        fits.iter().filter(|fit| is(&fit.verdict())).map(|fit| fit.card.name.clone()).collect()
    };
    let bad = of(|verdict| matches!(verdict, FitVerdict::DoesNotFit(..)));
    let unknown = of(|verdict| matches!(verdict, FitVerdict::Undecided(..)));
    match (bad.is_empty(), unknown.is_empty()) {
        (false, _) => Err(CommandFailure::Check(vec![format!("does not fit on {}", bad.join(", "))])),
        (_, false) => Err(CommandFailure::Undecided(vec![format!("on {}", unknown.join(", "))])),
        _ => Ok(()),
    }
}
