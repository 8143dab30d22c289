//! Models with random weights on a simulated GPU. Prints a row per model: how much is known about the uses of its memory.
//! The name of a model selects it; `--advice` prints findings, `--waste` what the peak would be, `--out=FILE` keeps the recording. Fails if less is known than
//! [`LEAST`]. `planted` checks programs with waste; `cost` prints what uses cost in a training step.

mod bert;
mod cost;
mod cumsum;
mod flash;
mod in_place;
mod llama;
mod planted;
mod quantized;
mod training;
mod unet;
mod whisper;

use std::error::Error;
use std::process::{Command, ExitCode};

use candle_core::{Device, Result};
use memtrace::analysis::{use_coverage, waste};
use memtrace::report::findings;
use memtrace::snapshot::{BlockUses, RecordKind};
use memtrace::{Bytes, DeviceView, Snapshot};

type Outcome<T> = std::result::Result<T, Box<dyn Error>>;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// Least percentages: launches whose arguments are known, bytes whose last use is known, and bytes that live to the end and
/// are used in the last pass.
const LEAST: [f64; 3] = [99., 95., 99.];
/// Highest percentage of bytes that nothing uses: a launch that is not seen would leave some.
const MOST_UNUSED: f64 = 0.1;

/// Runs at least two passes, and calls the function before the last one.
type Model = fn(&Device, &mut dyn FnMut()) -> Result<()>;

const MODELS: &[(&str, Model)] = &[
    ("mlp", training::mlp),
    ("resnet-50", training::resnet),
    ("llama-prefill", llama::prefill),
    ("llama-decode", llama::decode),
    ("quantized-llama", quantized::generate),
    ("whisper", whisper::transcribe),
    ("bert", bert::embed),
    ("unet", unet::denoise),
    ("flash-attention", flash::attend),
];

/// Models of real sizes, for `--waste`.
const REAL: &[(&str, Model)] = &[
    ("llama-3.2-1b", llama::long_prompts),
    ("bert-base", bert::embed_texts),
    ("stable-diffusion-1.5", unet::denoise_image),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (options, names): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|argument| argument.starts_with("--"));
    let is_ok = match names[..] {
        [] => every_model(&options),
        ["planted"] => planted::check(),
        ["cost"] => cost::print(),
        [name] => one_model(name, &options),
        _ => Err("name one model, or none for all".into()),
    };
    match is_ok {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs each model in a process of its own: candle keeps workspaces in statics.
fn every_model(options: &[&str]) -> Outcome<bool> {
    println!(
        "| model | kernels | arguments known | bytes allocated | last use known | never used | in the last pass | peak |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut is_ok = true;
    for (name, _) in MODELS {
        is_ok &= Command::new(std::env::current_exe()?).arg(name).args(options).status()?.success();
    }
    Ok(is_ok)
}

fn one_model(name: &str, options: &[&str]) -> Outcome<bool> {
    let (_, model) = MODELS.iter().chain(REAL).find(|(known, _)| *known == name).ok_or("no model has this name")?;
    let session = memtrace::builder().uses(true).max_entries(1 << 20).start()?;
    let mut before_last = 0;
    let operations = |snapshot: &Snapshot| snapshot.gpu_work.as_ref().map_or(0, |work| work.totals.operations);
    model(&Device::new_cuda(0)?, &mut || before_last = operations(&session.snapshot()))?;
    let snapshot = session.snapshot();
    let row = Row::of(&snapshot, before_last)?;
    row.print(name);
    if let Some(file) = options.iter().find_map(|option| option.strip_prefix("--out=")) {
        snapshot.write(file)?;
    }
    if options.contains(&"--advice") {
        print_findings(&snapshot);
    }
    if options.contains(&"--waste") {
        print_waste(&snapshot)?;
    }
    Ok(row.is_enough())
}

/// What is known about one model.
struct Row {
    launches: u64,
    laid_out: u64,
    bytes: u64,
    known: u64,
    unused: u64,
    /// Bytes of blocks that live from before the last pass to the end.
    held: u64,
    /// Those that the last pass uses.
    held_and_used: u64,
    peak: u64,
    /// Names of operations whose arguments are unknown.
    opaque: Vec<String>,
}

impl Row {
    fn of(snapshot: &Snapshot, before_last: u64) -> Outcome<Self> {
        let device = snapshot.device(memtrace::Device::Cuda(0)).ok_or("the GPU was not recorded")?;
        let work = snapshot.gpu_work.as_ref().ok_or("uses were not recorded")?;
        if device.overwritten > 0 || work.totals.lost > 0 {
            return Err("records were overwritten".into());
        }
        let coverage = use_coverage(snapshot);
        let allocs = || device.records.iter().filter(|record| record.kind == RecordKind::Alloc);
        let sum = |is: &dyn Fn(&BlockUses) -> bool| -> u64 {
            allocs().filter(|record| device.uses_of(record.alloc_seq).is_some_and(is)).map(|record| record.size).sum()
        };
        let is_held = |uses: &BlockUses| {
            uses.allocated_at < before_last && uses.freed_at.is_none_or(|at| at == work.totals.operations)
        };
        let is_used = |uses: &BlockUses| uses.last.is_some_and(|last| last.operation > before_last);
        Ok(Self {
            launches: work.totals.launches,
            laid_out: work.totals.laid_out,
            bytes: coverage.bytes,
            known: coverage.known,
            unused: sum(&BlockUses::is_unused),
            held: sum(&is_held),
            held_and_used: sum(&|uses| is_held(uses) && is_used(uses)),
            peak: device.peak.bytes,
            opaque: work.opaque.iter().map(|(id, count)| format!("{} ({count})", work.kernel(*id))).collect(),
        })
    }

    fn percentages(&self) -> [f64; 3] {
        [percent(self.laid_out, self.launches), percent(self.known, self.bytes), percent(self.held_and_used, self.held)]
    }

    fn is_enough(&self) -> bool {
        let is_known = self.percentages().iter().zip(LEAST).all(|(known, least)| *known >= least);
        self.launches > 0 && is_known && percent(self.unused, self.bytes) <= MOST_UNUSED
    }

    fn print(&self, name: &str) {
        let [laid_out, known, in_last] = self.percentages();
        println!(
            "| {name} | {} | {laid_out:.1} % | {} | {known:.1} % | {:.2} % | {in_last:.1} % | {} |",
            self.launches,
            Bytes(self.bytes),
            percent(self.unused, self.bytes),
            Bytes(self.peak)
        );
        if !self.opaque.is_empty() {
            println!("{name}: unknown arguments: {}", self.opaque.join(", "));
        }
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 100. } else { 100. * part as f64 / whole as f64 }
}

fn print_findings(snapshot: &Snapshot) {
    let Some(device) = snapshot.device(memtrace::Device::Cuda(0)) else { return };
    for finding in findings(&DeviceView::of(snapshot, device)) {
        println!("{finding:#?}");
    }
}

fn print_waste(snapshot: &Snapshot) -> Outcome<()> {
    let device = snapshot.device(memtrace::Device::Cuda(0)).ok_or("the GPU was not recorded")?;
    println!("peak of {} bytes", device.peak.bytes);
    for row in waste(&DeviceView::of(snapshot, device)) {
        println!("{:?}: {} bytes of {}", row.kind, row.bytes, row.line);
        println!(
            "    last used by {} at {}; without, the peak is {} bytes",
            row.kernel, row.use_line, row.peak_without
        );
    }
    Ok(())
}
