//! Trains ResNet-50 for a few iterations and reports which source lines held the memory at the peak.
//!
//! The network is that of PyTorch's memory tutorial, with random weights and random images.

mod args;
mod model;
#[path = "../shared/options.rs"]
mod options;
#[path = "../shared/output.rs"]
mod output;
mod sgd;

use std::error::Error;
use std::time::Instant;

use args::Args;
use candle_core::{DType, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use memtrace::{Bytes, scope};
use model::ResNet50;
use sgd::SgdMomentum;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

const LEARNING_RATE: f64 = 0.01;
const MOMENTUM: f64 = 0.9;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Outcome<()> {
    let Some(args) = Args::parse()? else { return Ok(()) };
    // The threshold of 64 KiB makes five iterations fit into 100,000 records; smaller blocks hold well under 1 % of the
    // peak.
    let session =
        options::record(args.max_entries, (args.min_size.as_deref(), "64KiB"), args.sample_interval.as_deref())?;
    let out = output::folder("resnet", args.out.as_deref())?;
    let trained = train(&args);
    if trained.is_err() {
        eprintln!("the training failed; the report covers it up to the failure");
    }
    eprintln!("resolving symbols");
    let snapshot = session.snapshot();
    drop(session);
    println!("{}", snapshot.report());
    let written = output::write(&snapshot, &out);
    // If both failed, the run's error is returned.
    trained.and(written)
}

fn train(args: &Args) -> Outcome<()> {
    let device = args.device.open()?;
    let varmap = VarMap::new();
    let model = scope("load", || ResNet50::new(VarBuilder::from_varmap(&varmap, DType::F32, &device)))?;
    memtrace::candle::tag_varmap(&varmap);
    let loaded = memtrace::stats(&device).live();
    let place = memtrace::IntoDevice::into_device(&device);
    eprintln!("loaded: {} ({loaded} bytes) live on {place}, parameters and running statistics", Bytes(loaded));
    let mut optimizer = SgdMomentum::new(sorted_vars(&varmap)?, LEARNING_RATE, MOMENTUM);
    let shape = (args.batch, 3, args.image, args.image);
    let images = scope("input", || Tensor::randn(0f32, 1f32, shape, &device))?;
    let labels: Vec<u32> = (0..args.batch as u32).map(|image| image % 1000).collect();
    let labels = Tensor::new(labels, &device)?;
    for number in 1..=args.iterations {
        memtrace::reset_peak(&device);
        let label = format!("iteration {number}");
        let loss = scope(&label, || iteration(&model, &mut optimizer, &images, &labels))?;
        let stats = memtrace::stats(&device);
        let (peak, about) = (stats.allocated_bytes.peak, if stats.counted.is_some() { "about " } else { "" });
        eprintln!("{label} of {}: {loss}, peak {about}{} ({peak} bytes)", args.iterations, Bytes(peak));
    }
    Ok(())
}

/// One training step; returns the loss and the seconds of each phase.
fn iteration(model: &ResNet50, optimizer: &mut SgdMomentum, images: &Tensor, labels: &Tensor) -> Outcome<String> {
    let began = Instant::now();
    let loss = scope("forward", || {
        let logits = model.forward(images)?;
        candle_nn::loss::cross_entropy(&logits, labels)
    })?;
    // A GPU runs asynchronously, so each phase waits for it.
    let device = images.device();
    device.synchronize()?;
    let forward = began.elapsed();
    let gradients = scope("backward", || memtrace::candle::backward(&loss))?;
    memtrace::candle::tag_grads(&gradients);
    device.synchronize()?;
    let backward = began.elapsed() - forward;
    scope("optimizer", || optimizer.step(&gradients))?;
    device.synchronize()?;
    let step = began.elapsed() - forward - backward;
    let seconds = [forward, backward, step].map(|phase| format!("{:.2} s", phase.as_secs_f64()));
    let [forward, backward, step] = seconds;
    let loss = loss.to_scalar::<f32>()?;
    Ok(format!("loss {loss:.4}, forward {forward}, backward {backward}, optimizer {step}"))
}

/// The variables sorted by name, because the order of `VarMap` differs between runs.
fn sorted_vars(varmap: &VarMap) -> Outcome<Vec<Var>> {
    let named = varmap.data().lock().map_err(|_| "a thread panicked while it held the variables")?;
    let mut names: Vec<&String> = named.keys().collect();
    names.sort();
    Ok(names.into_iter().filter_map(|name| named.get(name).cloned()).collect())
}
