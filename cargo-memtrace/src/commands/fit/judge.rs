//! Runs of the program on simulated GPUs, and what they need on each card.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memtrace_core::analysis::{AskedFor, Card, Fit, FitVerdict};
use memtrace_core::report::{Report, Section, plan_answer, plan_section};
use memtrace_core::snapshot::{Device, SnapshotData};
use memtrace_core::{DeviceView, Recording};

use super::arguments::FitArgs;
use crate::commands::run::{self, Ended, Output, RunArgs};
use crate::failure::CommandFailure;
use crate::{input, output};

/// More memory than any card has. A simulated GPU only uses addresses.
const MEMORY: &str = "1TiB";

/// The simulated driver computes no results. Instead of zeros, it can give the program these values.
const OTHER_VALUES: [&str; 2] = ["floats", "integers"];

/// The shortest time limit for a run with other values, because such a run may never end.
const LEAST_LIMIT: Duration = Duration::from_secs(10);

/// The result of one run.
pub(super) struct Judged {
    pub(super) gpus: Vec<JudgedGpu>,
    /// The first lines of the report on the run.
    pub(super) answer: Vec<String>,
    /// How long the recording lasted.
    lasted: Duration,
}

/// A GPU that the program used, with its verdict on each card. For a card that is too small, it has changes that would
/// make the program fit.
pub(super) struct JudgedGpu {
    pub(super) device: Device,
    asked: AskedFor,
    pub(super) fits: Vec<Fit>,
    pub(super) plans: Vec<Option<Planned>>,
}

/// Changes that would make a program fit on a card: the answer and a table.
#[derive(Clone)]
pub(super) struct Planned(pub(super) Vec<String>, pub(super) Section);

impl Judged {
    /// Changes each verdict.
    fn change(&mut self, change: impl Fn(&JudgedGpu, Fit) -> Fit) {
        for gpu in &mut self.gpus {
            let fits = std::mem::take(&mut gpu.fits);
            gpu.fits = fits.into_iter().map(|fit| change(gpu, fit)).collect();
        }
    }

    /// Whether the program fits on a card. If it uses several GPUs, it must fit on as many of these cards.
    pub(super) fn fits_on(&self, card: usize) -> bool {
        let fits = |gpu: &JudgedGpu| gpu.fits.get(card).is_some_and(is_fit);
        self.gpus.iter().all(fits)
    }

    /// The bytes that were live at the peak of the fullest GPU.
    pub(super) fn peak(&self) -> u64 {
        self.gpus.iter().map(|gpu| gpu.asked.peak()).max().unwrap_or(0)
    }
}

fn is_fit(fit: &Fit) -> bool {
    matches!(fit.verdict(), FitVerdict::Fits(..))
}

/// The name of the varied argument, and its value.
pub(super) type Varied<'a> = Option<(&'a str, u64)>;

/// Runs the program, or reads its recording.
pub(super) fn judge(args: &FitArgs, cards: &[Card], varied: Varied<'_>) -> Result<Judged, CommandFailure> {
    let read = |file: &Path| input::read(Some(file)).map(|recording| recording.data);
    let data = match &args.recording {
        Some(file) => read(file)?,
        None => match record(args, varied, None)? {
            (Ended::Well, file) => read(&file.path())?,
            _ => return Err(failed_run(varied)),
        },
    };
    of_recording(args, cards, &data)
}

fn failed_run(varied: Varied<'_>) -> CommandFailure {
    let with = varied.map_or(String::new(), |(name, value)| format!(" with {name}={value}"));
    CommandFailure::usage(format!("the program failed on the simulated GPU{with}; its messages are above"))
}

pub(super) fn of_recording(args: &FitArgs, cards: &[Card], data: &SnapshotData) -> Result<Judged, CommandFailure> {
    let recording = Recording::new(data);
    let gpus: Vec<&DeviceView<'_>> = gpus(&recording).collect();
    if gpus.is_empty() {
        return Err(CommandFailure::usage("the program used no GPU memory"));
    }
    if let Some(why) = gpus.iter().find_map(|gpu| Fit::doubt(gpu)) {
        return Err(CommandFailure::Undecided(vec![format!("the recording does not say what is needed: {why}")]));
    }
    let on = |gpu: &DeviceView<'_>, card: &Card| {
        let fit = if card.unified { Fit::on_host(&recording, gpu, card.clone()) } else { Fit::of(gpu, card.clone()) };
        fit.with("other processes, display", args.reserve).with("margin", args.margin)
    };
    let judged = |gpu: &&DeviceView<'_>| {
        let fits: Vec<Fit> = cards.iter().map(|card| on(gpu, card)).collect();
        let plans = fits.iter().map(|fit| planned(args, gpu, fit)).collect();
        JudgedGpu { device: gpu.device, asked: Fit::asked_for(gpu), fits, plans }
    };
    Ok(Judged {
        gpus: gpus.iter().map(judged).collect(),
        answer: Report::first_look(data)?.answer,
        lasted: Duration::from_nanos(data.process.duration_ns),
    })
}

/// Changes that would make the program fit on a card that is too small. None are planned if the user named no cards.
fn planned(args: &FitArgs, gpu: &DeviceView<'_>, fit: &Fit) -> Option<Planned> {
    if args.is_of_all_cards() || !matches!(fit.verdict(), FitVerdict::DoesNotFit(..)) {
        return None;
    }
    let left = Some(fit.left_for_live(gpu)).filter(|left| *left > 0)?;
    let plan = gpu.plan(left).ok().filter(|plan| !plan.steps.is_empty())?;
    let mut section = plan_section(gpu, &plan);
    section.title = match plan.short() {
        0 => format!("Changes that would make the program fit on {}", fit.card.name),
        _ => format!("Changes that would bring the program nearer to {}", fit.card.name),
    };
    let answer = plan_answer(gpu, &plan);
    section.about.splice(..0, answer.iter().cloned());
    Some(Planned(answer, section))
}

fn gpus<'a, 'b>(recording: &'b Recording<'a>) -> impl Iterator<Item = &'b DeviceView<'a>> {
    recording.devices().iter().filter(|device| matches!(device.device, Device::Cuda(_)) && device.peak.total() > 0)
}

/// If the first run fits on a card, runs the program again with other values from the GPU. If the program then
/// requests other memory, it is uncertain for every card whether the program fits.
pub(super) fn doubt_values(args: &FitArgs, judged: &mut Judged, varied: Varied<'_>) -> Result<(), CommandFailure> {
    let fits = judged.gpus.iter().flat_map(|gpu| &gpu.fits).any(is_fit);
    if !fits || args.recording.is_some() {
        return Ok(());
    }
    output::say("the program runs twice more, with values other than zeros from the GPU");
    let limit = LEAST_LIMIT + 20 * judged.lasted;
    for values in OTHER_VALUES {
        let (ended, file) = record(args, varied, Some((values, limit)))?;
        let data = match ended {
            Ended::Well => input::read(Some(&file.path()))?.data,
            // The values may be no valid indices, or may make no sense to the program. So a failure shows nothing.
            Ended::WithFailure => continue,
            Ended::ByLimit => {
                judged.change(|_, fit| fit.in_doubt("it did not end when the GPU gave other values than zeros"));
                continue;
            }
        };
        let other = Recording::new(&data);
        judged.change(|gpu, fit| {
            let then = gpus(&other).find(|view| view.device == gpu.device).map(Fit::asked_for);
            fit.with_other_values(gpu.asked, then)
        });
    }
    Ok(())
}

/// How a run ended, and its recording. A run with other values from the GPU is stopped after a while.
fn record(
    args: &FitArgs,
    varied: Varied<'_>,
    values: Option<(&str, Duration)>,
) -> Result<(Ended, TempFile), CommandFailure> {
    let folder = tempfile::tempdir().map_err(|error| CommandFailure::usage(format!("no temporary folder: {error}")))?;
    let file = TempFile(folder);
    let filled = |argument: &OsString| match (argument.to_str(), varied) {
        (Some(text), Some((name, value))) => text.replace(&format!("{{{name}}}"), &value.to_string()).into(),
        _ => argument.clone(),
    };
    let variables = varied.map(|(name, value)| (name.to_owned(), value.to_string()));
    let results = values.map(|(values, _)| ("MEMTRACE_CUSIM_RESULTS".to_owned(), values.to_owned()));
    let integrated = args.unified.then(|| ("MEMTRACE_CUSIM_INTEGRATED".to_owned(), "1".to_owned()));
    let run = RunArgs {
        cargo: args.cargo.clone(),
        simulate: Some(vec![MEMORY; args.count.into()].join(",")),
        out: Some(file.path()),
        uses: !args.is_of_all_cards(),
        exec: args.exec.clone(),
        args: args.args.iter().map(filled).collect(),
        variables: variables.into_iter().chain(results).chain(integrated).collect(),
        ..RunArgs::default()
    };
    let shown = if values.is_some() { Output::Hidden } else { Output::OnStandardError };
    let ended = run::record(&run, &file.path(), shown, values.map(|(_, limit)| limit))?;
    Ok((ended, file))
}

/// A recording that is removed with its folder.
struct TempFile(tempfile::TempDir);

impl TempFile {
    fn path(&self) -> PathBuf {
        self.0.path().join("fit.memtrace")
    }
}
