//! Programs as people write them, and each with the advice of its finding followed, written from docs/findings.md before any of them was run:
//! what the finding promises, and what following it saves.
//!
//! `cargo test -p llama-example --test followed -- --nocapture`

use std::any::Any;
use std::collections::HashMap;

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, SGD};
use memtrace::report::{Cost, Finding};
use memtrace::{Bytes, Snapshot};

#[path = "followed/inference.rs"]
mod inference;
#[path = "followed/operators.rs"]
mod operators;
#[path = "followed/training.rs"]
mod training;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

const CPU: &Device = &Device::Cpu;

/// What a program still holds when the snapshot is taken.
type Kept = Box<dyn Any>;

/// A name, the kind of its finding, and the program: as it is written, or cured.
type Program = (&'static str, &'static str, fn(cured: bool) -> Result<Kept>);

fn nothing() -> Result<Kept> {
    Ok(Box::new(()))
}

fn randn(rows: usize, width: usize) -> Result<Tensor> {
    Tensor::randn(0f32, 1., (rows, width), CPU)
}

/// Two layers with their weights as variables.
struct Net {
    weights: [Var; 2],
}

impl Net {
    fn new(width: usize) -> Result<Self> {
        let weight = || Var::randn(0f32, 0.05, (width, width), CPU);
        Ok(Self { weights: [weight()?, weight()?] })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.matmul(&self.weights[0])?.affine(1., 0.1)?.tanh()?.matmul(&self.weights[1])?.tanh()
    }

    /// The same with weights that are no variables.
    fn infer(&self, x: &Tensor) -> Result<Tensor> {
        let weights = self.weights.each_ref().map(Var::as_detached_tensor);
        x.matmul(&weights[0])?.affine(1., 0.1)?.tanh()?.matmul(&weights[1])?.tanh()
    }

    fn sgd(&self) -> Result<SGD> {
        SGD::new(self.weights.to_vec(), 1e-3)
    }
}

struct Recorded {
    peak: u64,
    at_end: u64,
    found: Vec<Finding>,
}

fn recorded(program: fn(bool) -> Result<Kept>, cured: bool) -> Recorded {
    let session = memtrace::start().expect("one at a time");
    let kept = program(cured).expect("candle works");
    let snapshot: Snapshot = session.snapshot();
    drop(kept);
    let device = snapshot.device(memtrace::Device::Cpu).expect("it allocates");
    let at_end = device.live.iter().map(|block| block.size).sum();
    Recorded { peak: device.peak.bytes, at_end, found: memtrace::report::findings(&snapshot, device) }
}

/// The bytes that a finding promises: the peak less the one that it predicts, or else its cost.
fn promised(finding: &Finding, peak: u64) -> Option<u64> {
    let predicted = finding.advice.iter().find_map(|line| {
        let (_, bytes) = line.strip_suffix(" bytes.").or(line.split_once(" bytes").map(|(line, _)| line))?.rsplit_once(": ")?;
        bytes.replace(',', "").parse::<u64>().ok()
    });
    match (finding.cost, predicted) {
        (_, Some(predicted)) => peak.checked_sub(predicted),
        (Cost::OfPeak(bytes) | Cost::AtEnd(bytes), None) if !finding.advice.is_empty() => Some(bytes),
        _ => None,
    }
}

/// What is wrong with the advice on a program; nothing if it delivers.
fn followed((name, kind, program): Program) -> std::result::Result<(), String> {
    let [written, cured] = [false, true].map(|cured| recorded(program, cured));
    let kinds = |of: &Recorded| of.found.iter().map(|finding| finding.kind).collect::<Vec<_>>();
    let Some(finding) = written.found.iter().find(|finding| finding.kind == kind) else {
        let saved = written.peak.saturating_sub(cured.peak);
        println!("| {name} | {kind} | absent | {} of {} | - | {:?}", Bytes(saved), Bytes(written.peak), kinds(&written));
        return Err(format!("{name}: no {kind}, but {:?}", kinds(&written)));
    };
    let measured = match finding.cost {
        Cost::AtEnd(_) => written.at_end.saturating_sub(cured.at_end),
        _ => written.peak.saturating_sub(cured.peak),
    };
    let promised = promised(finding, written.peak);
    let ratio = promised.map_or(f64::NAN, |promised| measured as f64 / promised as f64);
    let line = finding.line.as_deref().unwrap_or("-").split(' ').next().unwrap_or("-");
    println!(
        "| {name} | {kind} | {} | {} of {} | {ratio:.3} | {:?} {line}; others {:?}, cured {:?}",
        promised.map_or("nothing".to_owned(), |bytes| Bytes(bytes).to_string()),
        Bytes(measured),
        Bytes(written.peak),
        finding.confidence,
        kinds(&written),
        kinds(&cured)
    );
    for other in written.found.iter().filter(|_| std::env::var_os("FOLLOWED_ADVICE").is_some()) {
        println!("    {} {}: {} {:?}", other.kind, other.cost, other.what, other.advice);
    }
    match promised {
        None => Err(format!("{name}: {kind} promises nothing")),
        Some(_) if ratio < 0.99 => Err(format!("{name}: {kind} under-delivers: {ratio:.3}")),
        Some(_) if kinds(&cured).contains(&kind) => Err(format!("{name}: still {kind} when cured")),
        Some(_) => Ok(()),
    }
}

#[test]
fn advice_that_is_followed_saves_what_it_promises() {
    // What the first product of matrices sets up for all.
    Net::new(64).and_then(|net| net.forward(&randn(64, 64)?)).expect("candle works");
    println!("| program | kind | promised | measured | ratio |");
    let all = [training::PROGRAMS, inference::PROGRAMS, operators::PROGRAMS].concat();
    let wrong: Vec<String> = all.iter().filter_map(|program| followed(*program).err()).collect();
    println!("{} of {} deliver", all.len() - wrong.len(), all.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}
