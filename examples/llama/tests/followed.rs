//! Programs as people write them, and the same programs with the advice of their finding followed. They show what the
//! finding promises, and what following it saves. They were written from docs/findings.md before any of them was run.
//!
//! `cargo test -p llama-example --test followed -- --nocapture` prints the results. With `MEMTRACE_CASES=1`, ten
//! programs of each kind that is certain run.

use std::any::Any;
use std::collections::HashMap;

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, SGD};
use memtrace::report::{Confidence, Cost, Finding};
use memtrace::{Bytes, DeviceView, Snapshot};

#[path = "../../../tests/support/child.rs"]
mod child;
#[path = "followed/frugal.rs"]
mod frugal;
#[path = "followed/held_out.rs"]
mod held_out;
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

/// The kind of a program for which no finding can be promised.
const NOTHING: &str = "nothing";

/// A program of a kind that is certain.
type Sample = Box<dyn Fn(bool) -> Result<Kept>>;

/// A name, the kind of the program's finding, and the program: as written, or cured.
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

    /// The same forward pass, with weights that are no variables.
    fn infer(&self, x: &Tensor) -> Result<Tensor> {
        let weights = self.weights.each_ref().map(Var::as_detached_tensor);
        x.matmul(&weights[0])?.affine(1., 0.1)?.tanh()?.matmul(&weights[1])?.tanh()
    }

    fn sgd(&self) -> Result<SGD> {
        SGD::new(self.weights.to_vec(), 1e-3)
    }
}

/// Runs the test in a process of its own, in which a product of matrices uses the buffer of one thread. With the
/// buffers of many threads, what a program wastes would be a small part of its peak. A first product runs before the
/// test, so its setup does not count.
fn in_one_thread(test: impl FnOnce()) {
    let body = || {
        Net::new(64).and_then(|net| net.forward(&randn(64, 64)?)).expect("candle works");
        test();
    };
    print!("{}", child::in_child(&[("RAYON_NUM_THREADS", "1")], body).out);
}

struct Recorded {
    peak: u64,
    at_end: u64,
    found: Vec<Finding>,
}

fn recorded(program: impl Fn(bool) -> Result<Kept>, cured: bool) -> Recorded {
    let session = memtrace::start().expect("one at a time");
    let kept = program(cured).expect("candle works");
    let snapshot: Snapshot = session.snapshot();
    drop(kept);
    let device = snapshot.device(memtrace::Device::Cpu).expect("it allocates");
    let at_end = device.live.iter().map(|block| block.size).sum();
    Recorded { peak: device.peak.bytes, at_end, found: memtrace::report::findings(&DeviceView::of(&snapshot, device)) }
}

/// The peak that the finding's advice predicts.
fn predicted(finding: &Finding) -> Option<u64> {
    let bytes = |line: &String| line.strip_suffix(" bytes.")?.rsplit_once(": ")?.1.replace(',', "").parse().ok();
    finding.advice.iter().find_map(bytes)
}

/// The bytes that a finding promises: the peak minus the predicted peak, or else the finding's cost.
fn promised(finding: &Finding, peak: u64) -> Option<u64> {
    match (finding.cost, predicted(finding)) {
        (_, Some(predicted)) => peak.checked_sub(predicted),
        (Cost::OfPeak(bytes) | Cost::AtEnd(bytes), None) => Some(bytes),
        _ => None,
    }
}

fn kinds(of: &Recorded) -> Vec<&'static str> {
    of.found.iter().map(|finding| finding.kind.word()).collect()
}

/// The bytes that the cure saves, measured by the finding's kind of cost.
fn saved(cost: Cost, [written, cured]: [&Recorded; 2]) -> u64 {
    match cost {
        Cost::AtEnd(_) => written.at_end.saturating_sub(cured.at_end),
        _ => written.peak.saturating_sub(cured.peak),
    }
}

/// Runs a program as written and cured, and prints its row. Returns what is wrong with its findings; `None` if they
/// deliver.
fn followed((name, kind, program): Program) -> Option<String> {
    let [written, cured] = [false, true].map(|cured| recorded(program, cured));
    let (both, peak) = ([&written, &cured], written.peak);
    let Some(finding) = written.found.iter().find(|finding| finding.kind.word() == kind) else {
        println!(
            "| {name} | {:?} instead of {kind} | | {} of {} | |",
            kinds(&written),
            Bytes(saved(Cost::OfPeak(0), both)),
            Bytes(peak)
        );
        return (kind != NOTHING || !written.found.is_empty())
            .then(|| format!("{name}: {:?} instead of {kind}", kinds(&written)));
    };
    let (promise, measured) = (promised(finding, peak), saved(finding.cost, both));
    let ratio = promise.map_or(f64::NAN, |promise| measured as f64 / promise as f64);
    println!(
        "| {name} | {kind} | {} | {} of {} | {ratio:.2} |",
        Bytes(promise.unwrap_or(0)),
        Bytes(measured),
        Bytes(peak)
    );
    let delivers = |finding: &&Finding| {
        let promise = if finding.kind.word() == kind {
            promised(finding, peak)
        } else {
            predicted(finding).map(|then| peak - then)
        };
        promise.is_none_or(|promise| saved(finding.cost, both) * 100 >= promise * 99)
    };
    let left: Vec<_> =
        written.found.iter().filter(|finding| !delivers(finding)).map(|finding| finding.kind.word()).collect();
    let is_well = promise.is_some() && left.is_empty() && cured.found.is_empty();
    (!is_well).then(|| format!("{name}: under-deliver {left:?}; in the cured program {:?}", kinds(&cured)))
}

#[test]
fn advice_that_is_followed_saves_what_it_promises() {
    in_one_thread(|| {
        println!("| program | kind | promised | measured | ratio |");
        let all = [training::PROGRAMS, inference::PROGRAMS, operators::PROGRAMS, held_out::PROGRAMS].concat();
        let wrong: Vec<String> = all.iter().filter_map(|program| followed(*program)).collect();
        println!("{} of {} deliver", all.len() - wrong.len(), all.len());
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}

#[test]
fn a_kind_that_is_certain_had_the_predicted_peak() {
    in_one_thread(certain_ones);
}

fn certain_ones() {
    println!("| kind | peak | predicted | measured |");
    let programs = if std::env::var_os("MEMTRACE_CASES").is_some() { 10 } else { 3 };
    let is_certain = |finding: &&Finding| finding.confidence == Confidence::Certain;
    let mut delivered: HashMap<&str, usize> = HashMap::new();
    let all = operators::certain().into_iter().chain(training::certain()).collect::<Vec<_>>();
    for program in all.chunks(10).flat_map(|kind| &kind[..programs]) {
        let [written, cured] = [false, true].map(|cured| recorded(program, cured));
        let found: Vec<&Finding> = written.found.iter().filter(is_certain).collect();
        let [finding] = found[..] else { panic!("{:?}", kinds(&written)) };
        let predicted = predicted(finding).expect("it is replayed");
        println!(
            "| {} | {} | {} | {} |",
            finding.kind.word(),
            Bytes(written.peak),
            Bytes(predicted),
            Bytes(cured.peak)
        );
        assert!(predicted.abs_diff(cured.peak) * 100 <= cured.peak, "{} instead of {predicted}", cured.peak);
        *delivered.entry(finding.kind.word()).or_default() += 1;
    }
    let certain = ["operator_temporaries", "optimizer_transient", "square"];
    assert_eq!(delivered, certain.map(|kind| (kind, programs)).into());
}
