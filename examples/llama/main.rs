//! Generates text with candle's Llama, and reports which lines hold the memory and what each token adds.
//!
//! The weights are random unless files are given; their memory does not depend on their values.

mod args;
mod generate;
mod model;
#[path = "../shared/options.rs"]
mod options;
#[path = "../shared/output.rs"]
pub(crate) mod output;

use std::error::Error;
use std::ffi::OsString;
use std::time::Duration;

use args::Args;
use candle_core::Device;
use candle_nn::{VarBuilder, VarMap};
use candle_transformers::models::llama::{Config, LlamaConfig};
use generate::Generation;
use memtrace::Bytes;
use model::Theory;
use tracing_subscriber::prelude::*;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

type Outcome<T> = Result<T, Box<dyn Error>>;

#[cfg_attr(test, allow(dead_code, reason = "the test of the example calls `run`"))]
fn main() {
    if let Err(error) = run(std::env::args_os().skip(1)) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

pub(crate) fn run(line: impl IntoIterator<Item = OsString>) -> Outcome<()> {
    let Some(args) = Args::parse(line)? else { return Ok(()) };
    let config = config(&args)?;
    // First, because a model creates its spans when it is loaded. A span created without a layer stays disabled.
    tracing_subscriber::registry().with(memtrace::layer()).init();
    let session =
        options::record(args.max_entries, (args.min_size.as_deref(), "1KiB"), args.sample_interval.as_deref())?;
    let out = output::folder("llama", args.out.as_deref())?;
    let generated = generate(&args, &config);
    if generated.is_err() {
        eprintln!("the generation failed; the report covers it up to the failure");
    }
    eprintln!("resolving symbols");
    let snapshot = session.snapshot();
    drop(session);
    println!("{}", snapshot.report());
    let written = output::write(&snapshot, &out);
    // If both failed, the run's error is returned.
    generated.and(written)
}

/// Generates with plain tensors, and with variables if requested. Returns what must live until the snapshot.
fn generate(args: &Args, config: &Config) -> Outcome<Generation> {
    let device = args.device.open()?;
    let theory = Theory::of(config, args.dtype);
    let weights = || match args.weights.as_slice() {
        [] => Ok(model::random(args.dtype, &device)),
        files => model::from_files(files, args.dtype, &device),
    };
    let plain = way("plain tensors", args, weights, config, &device)?;
    print_theory(&theory, &plain);
    println!("{}", growth_line("Each token", &plain, &theory));
    if !args.varmap {
        println!();
        return Ok(plain);
    }
    drop(plain);
    let variables = VarMap::new();
    let weights = || Ok(VarBuilder::from_varmap(&variables, args.dtype, &device));
    let leaking = way("variables", args, weights, config, &device)?;
    println!("{}", growth_line("  with variables", &leaking, &theory));
    println!("{ADVICE}\n");
    Ok(leaking)
}

const ADVICE: &str = "\
Operations on variables keep their arguments for a backward pass; the KV cache keeps the last operation, and with it
all earlier ones. The table by operator names them. Fix: use weights that are not variables, from VarBuilder's
from_tensors or from_mmaped_safetensors, or detach the tensors of the VarMap.";

/// Runs prefill and decode in a scope with this name.
fn way<'a>(
    name: &str,
    args: &Args,
    weights: impl FnOnce() -> candle_core::Result<VarBuilder<'a>>,
    config: &Config,
    device: &Device,
) -> Outcome<Generation> {
    let prompt: Vec<u32> = (0..args.prompt).map(|at| (at * 7919 % config.vocab_size) as u32).collect();
    memtrace::scope(name, || {
        let mut generation = Generation::load(weights, config, args.dtype, device)?;
        let (first, prefill) = generation.prefill(&prompt)?;
        eprintln!("{name}: prefill of {}", speed(args.prompt, prefill));
        let decode = generation.decode(first, args.prompt, args.tokens)?;
        eprintln!("{name}: decode of {}", speed(args.tokens, decode));
        Ok(generation)
    })
}

fn speed(tokens: usize, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    format!("{tokens} tokens in {seconds:.2} s, {:.1} tokens/s", tokens as f64 / seconds)
}

/// The configuration of the files, or a small one.
fn config(args: &Args) -> Outcome<Config> {
    let config = match &args.config {
        None => model::small(args.layers.unwrap_or(8), args.hidden.unwrap_or(512)),
        Some(path) => {
            let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let parsed: LlamaConfig =
                serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
            parsed.into_config(false)
        }
    };
    let (wanted, most) = (args.prompt + args.tokens, config.max_position_embeddings);
    if wanted > most {
        return Err(format!("--prompt and --tokens make {wanted} tokens; this model has {most} positions").into());
    }
    Ok(config)
}

fn print_theory(theory: &Theory, found: &Generation) {
    let row = |what: &str, live: u64, theory: u64| {
        println!("{what:<24}{live:>14}{theory:>14}  {}", Bytes(theory));
    };
    println!("Bytes that became live       measured     in theory");
    row("Weights", found.parameters, theory.parameters);
    row("RoPE tables", found.rope_tables, theory.rope_tables);
}

/// Bytes that a decoded token adds: median, least and most.
fn growth_line(what: &str, found: &Generation, theory: &Theory) -> String {
    let growth = found.growth();
    let at = |place: usize| growth.get(place).copied().unwrap_or(0);
    let (least, median, most) = (at(0), at(growth.len() / 2), at(growth.len().saturating_sub(1)));
    let (theory, times) = (theory.per_token, median as f64 / theory.per_token as f64);
    format!("{what:<24}{median:>14}{theory:>14}  {times:.2} times theory; from {least} to {most}")
}
