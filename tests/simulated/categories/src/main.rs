//! Programs whose every tensor says what it is for, on a simulated GPU: categories, which know only stacks, scopes and
//! lives, are held against that. Prints two lines for each program, the shares of bytes at the peak and of all, and what
//! is wrong; with `--full` also what is unknown. A program's name runs that one alone. Fails if anything is wrong, or too
//! little is right. `--truth` prints what the programs say, and holds nothing against it.

mod check;
mod truth;

mod accumulation;
mod adapters;
mod autoencoder;
mod by_hand;
mod caching;
mod cnn;
mod collected;
mod decoder;
mod distill;
mod ema;
mod gan;
mod lazy;
mod lazy_vars;
mod mlp;
mod quantized;
mod rl;
mod seq2seq;
mod sgd;
mod threads;
mod told;
mod turns;

use std::collections::BTreeMap;
use std::process::ExitCode;

use candle_core::{Device, Result, Var};
use candle_nn::VarMap;
use check::Rates;
use truth::Truth;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// A program, and the least percentage of bytes that must be right in it.
struct Program {
    name: &'static str,
    run: fn(&Truth, &Device) -> Result<()>,
    least: f64,
}

const fn tuned(name: &'static str, run: fn(&Truth, &Device) -> Result<()>) -> Program {
    Program { name, run, least: 90. }
}

const fn holdout(name: &'static str, run: fn(&Truth, &Device) -> Result<()>) -> Program {
    Program { name, run, least: 75. }
}

const PROGRAMS: &[Program] = &[
    // The rules were tuned on these.
    tuned("mlp", mlp::train),
    tuned("decoder", decoder::generate),
    tuned("lazy", lazy::train),
    tuned("lazy_vars", lazy_vars::train),
    tuned("sgd", sgd::train),
    tuned("backward_step", told::train),
    tuned("gan", gan::train),
    tuned("ema", ema::train),
    tuned("turns", turns::generate),
    tuned("joined", collected::join),
    tuned("pushed", collected::push),
    tuned("by_hand", by_hand::infer),
    tuned("adapters", adapters::train),
    tuned("accumulation", accumulation::train),
    tuned("threads", threads::infer),
    tuned("caching", caching::run),
    tuned("cnn", cnn::train),
    tuned("quantized", quantized::generate),
    // Written from the definitions of the categories alone, by someone who had not seen the rules.
    holdout("holdout_autoencoder", autoencoder::train),
    holdout("holdout_seq2seq", seq2seq::translate),
    holdout("holdout_distill", distill::train),
    holdout("holdout_rl", rl::play),
];

/// A map's variables by name: its own order is another in each run.
fn variables(map: &VarMap) -> Vec<Var> {
    let named: BTreeMap<String, Var> = map.data().lock().expect("no thread panicked").clone().into_iter().collect();
    named.into_values().collect()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (options, names): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| argument.starts_with("--"));
    let in_full = options.iter().any(|option| *option == "--full");
    let only_truth = options.iter().any(|option| *option == "--truth");
    let mut failed = false;
    for program in PROGRAMS.iter().filter(|program| names.is_empty() || names.iter().any(|name| *name == program.name))
    {
        match rates(program, only_truth) {
            Ok(None) => {}
            Ok(Some(rates)) => {
                rates.print(program.name, in_full);
                failed |= rates.all.wrong() + rates.peak.wrong() > 0;
                failed |= rates.all.right().min(rates.peak.right()) < program.least;
            }
            Err(error) => {
                println!("{}: {error}", program.name);
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn rates(program: &Program, only_truth: bool) -> std::result::Result<Option<Rates>, Box<dyn std::error::Error>> {
    let session = memtrace::builder().min_size(1u64).max_entries(1 << 20).start()?;
    let device = Device::new_cuda(0)?;
    let truth = Truth::new(&device);
    (program.run)(&truth, &device)?;
    let snapshot = session.snapshot();
    let recorded = snapshot.device(memtrace::Device::from(&device)).ok_or("the GPU was recorded")?;
    assert_eq!(recorded.overwritten, 0, "the log is whole");
    if only_truth {
        println!("{}:", program.name);
        truth.print(recorded);
        return Ok(None);
    }
    Ok(Some(Rates::of(&truth, &snapshot, recorded)))
}
