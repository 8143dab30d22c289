//! Programs that state the purpose of every tensor, on a simulated GPU, compared with categories, which know only
//! stacks, scopes and lifetimes. Prints two lines per program with the parts of the bytes at the peak and of all bytes,
//! followed by wrong categories; with `--full` also unknown ones. The name of a program selects it. Fails if a category
//! is wrong, too little is right, or the report has a false finding. `--truth` prints the programs' statements without
//! the comparison. `--uses` prints a table instead: without uses of blocks, with uses as a real GPU shows them, and with
//! the const-ness of pointers, too, which only sources of kernels have. `--cpu` runs the programs that can on the CPU.

mod check;
mod truth;
mod ways;

mod accumulation;
mod adapters;
mod adversaries;
mod autoencoder;
mod beams;
mod by_hand;
mod caching;
mod chunks;
mod cnn;
mod collected;
mod contrast;
mod decoder;
mod diffusion;
mod distill;
mod ema;
mod experts;
mod gan;
mod lazy;
mod lazy_vars;
mod lora;
mod mlp;
mod policy;
mod quantized;
mod rl;
mod seq2seq;
mod sgd;
mod statistics;
mod threads;
mod told;
mod turns;

use std::collections::BTreeMap;
use std::process::ExitCode;

use candle_core::{Device, Result, Var};
use candle_nn::VarMap;
use check::Rates;
use memtrace::DeviceView;
use memtrace::report::findings;
use memtrace::snapshot::{DeviceSnapshot, SnapshotData};
use truth::Truth;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// A program, and the minimum percentages of right bytes, at the peak and of all.
struct Program {
    name: &'static str,
    run: fn(&Truth, &Device) -> Result<()>,
    least: [f64; 2],
    /// The same on the CPU, if the program runs there, too.
    on_cpu: Option<[f64; 2]>,
}

const fn program(name: &'static str, run: fn(&Truth, &Device) -> Result<()>, least: [f64; 2]) -> Program {
    Program { name, run, least, on_cpu: None }
}

impl Program {
    const fn and_on_cpu(self, least: [f64; 2]) -> Self {
        Self { on_cpu: Some(least), ..self }
    }
}

const PROGRAMS: &[Program] = &[
    // Kinds that the rules were wrong about or did not know; written from the definitions, too. What is known of worker threads'
    // blocks on the CPU depends on how busy the machine is.
    program("adversaries", adversaries::train, [95., 98.]).and_on_cpu([72., 90.]),
    program("diffusion", diffusion::train, [92., 97.]).and_on_cpu([30., 84.]),
    program("policy", policy::learn, [85., 91.]).and_on_cpu([60., 79.]),
    program("experts", experts::train, [96., 99.]).and_on_cpu([72., 93.]),
    program("beams", beams::search, [76., 91.]).and_on_cpu([42., 76.]),
    program("lora", lora::train, [92., 97.]).and_on_cpu([66., 80.]),
    // Written when the rules for those were finished.
    program("holdout_contrast", contrast::learn, [63., 82.]).and_on_cpu([48., 72.]),
    program("holdout_chunks", chunks::train, [82., 88.]).and_on_cpu([65., 83.]),
    // The rules were tuned with these programs.
    program("mlp", mlp::train, [99., 99.]),
    program("decoder", decoder::generate, [99., 97.]),
    program("lazy", lazy::train, [57., 87.]),
    program("lazy_vars", lazy_vars::train, [65., 87.]),
    program("sgd", sgd::train, [99., 99.]),
    program("backward_step", told::train, [99., 99.]),
    program("gan", gan::train, [91., 95.]),
    program("ema", ema::train, [88., 95.]),
    program("turns", turns::generate, [99., 96.]),
    program("joined", collected::join, [94., 98.]),
    program("pushed", collected::push, [25., 46.]),
    program("by_hand", by_hand::infer, [24., 74.]),
    program("adapters", adapters::train, [76., 95.]),
    program("accumulation", accumulation::train, [87., 91.]),
    program("threads", threads::infer, [90., 23.]),
    program("caching", caching::run, [63., 85.]),
    program("cnn", cnn::train, [96., 96.]),
    program("quantized", quantized::generate, [88., 90.]),
    program("statistics", statistics::train, [72., 91.]),
    // Written from the definitions of the categories alone, by an author who had not seen the rules.
    program("holdout_autoencoder", autoencoder::train, [68., 82.]),
    program("holdout_seq2seq", seq2seq::translate, [93., 89.]),
    program("holdout_distill", distill::train, [67., 89.]),
    program("holdout_rl", rl::play, [57., 87.]),
];

/// Variables by name: the order of `VarMap` differs between runs.
fn variables(map: &VarMap) -> Vec<Var> {
    let named: BTreeMap<String, Var> = map.data().lock().expect("no thread panicked").clone().into_iter().collect();
    named.into_values().collect()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (options, names): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| argument.starts_with("--"));
    let in_full = options.iter().any(|option| *option == "--full");
    let only_truth = options.iter().any(|option| *option == "--truth");
    let on_cpu = options.iter().any(|option| *option == "--cpu");
    let is_named = |program: &Program| names.is_empty() || names.iter().any(|name| *name == program.name);
    let selected = |program: &&Program| is_named(program) && (!on_cpu || program.on_cpu.is_some());
    if options.iter().any(|option| *option == "--uses") {
        return ways::print(PROGRAMS.iter().filter(selected), in_full);
    }
    let (mut failed, mut sums) = (false, Rates::default());
    for program in PROGRAMS.iter().filter(selected) {
        match rates(program, on_cpu, only_truth) {
            Ok(None) => {}
            Ok(Some(rates)) => {
                rates.print(program.name, in_full);
                failed |= rates.all.wrong() + rates.peak.wrong() > 0 && !on_cpu;
                failed |= rates.all.wrong_part().max(rates.peak.wrong_part()) > MOST_WRONG;
                let [at_peak, of_all] = program.on_cpu.filter(|_| on_cpu).unwrap_or(program.least);
                failed |= rates.peak.right() < at_peak || rates.all.right() < of_all;
                sums.sum(&rates);
            }
            Err(error) => {
                println!("{}: {error}", program.name);
                failed = true;
            }
        }
    }
    if names.len() != 1 && !only_truth {
        sums.print("in all", false);
        sums.print_between();
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Per cent of bytes that may be wrong on the CPU, where also the smallest block of the heap counts.
const MOST_WRONG: f64 = 0.1;

/// Programs that only use candle's AdamW and whose peak is in its step.
const WITH_ADAMW: [&str; 4] = ["mlp", "ema", "accumulation", "holdout_distill"];

/// Asserts that the report has no finding for programs without a problem.
fn check_findings(name: &str, data: &SnapshotData, device: &DeviceSnapshot) -> std::result::Result<(), String> {
    let found: Vec<&str> = findings(&DeviceView::of(data, device)).iter().map(|finding| finding.kind.word()).collect();
    let expected: &[&str] = match name {
        // It collects its outputs.
        "pushed" => &["growth"],
        // The critic's loss lives until the generator has made its step.
        "gan" => &["optimizer_transient", "kept_loss"],
        _ if WITH_ADAMW.contains(&name) => &["optimizer_transient"],
        _ => &[],
    };
    if found == expected { Ok(()) } else { Err(format!("found {found:?}, expected {expected:?}")) }
}

fn recorded(
    program: &Program,
    on_cpu: bool,
    uses: bool,
) -> std::result::Result<(Truth, memtrace::Snapshot), Box<dyn std::error::Error>> {
    let session = memtrace::builder().min_size(1u64).max_entries(1 << 20).uses(uses).start()?;
    let device = if on_cpu { Device::Cpu } else { Device::new_cuda(0)? };
    let truth = Truth::new(&device);
    (program.run)(&truth, &device)?;
    let snapshot = session.snapshot();
    let is_whole = snapshot.devices.iter().all(|device| device.overwritten == 0);
    assert!(is_whole, "the log is whole");
    Ok((truth, snapshot))
}

fn rates(
    program: &Program,
    on_cpu: bool,
    only_truth: bool,
) -> std::result::Result<Option<Rates>, Box<dyn std::error::Error>> {
    let (truth, snapshot) = recorded(program, on_cpu, false)?;
    let recorded = snapshot.device(truth.device).ok_or("the device was recorded")?;
    if only_truth {
        println!("{}:", program.name);
        truth.print(recorded);
        return Ok(None);
    }
    // Those that also run on the CPU are about categories only.
    if program.on_cpu.is_none() {
        check_findings(program.name, &snapshot, recorded)?;
    }
    Ok(Some(Rates::of(&truth, &snapshot, recorded)))
}
