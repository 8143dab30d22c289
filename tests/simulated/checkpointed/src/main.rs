//! Trains networks on a simulated GPU as they are, and with their numbered modules checkpointed by hand. Prints for each the peak, the one
//! that the finding predicts, and that of the program by hand; fails if these two differ. The name of a network selects it; with `report` and
//! what is known (`nothing`, `order`, `names`, `uses`) its report is printed.

mod held_out;
mod llama;
mod networks;
mod wrapper;

use std::error::Error;
use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Module, Result, Tensor, Var};
use candle_nn::{Optimizer, SGD};
use memtrace::analysis::{Key, Part, checkpoints};
use memtrace::candle::Traced;
use memtrace::{DeviceView, Snapshot};
use networks::Network;
use wrapper::{Checkpointed, Gradients};

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

type Outcome<T> = std::result::Result<T, Box<dyn Error>>;

const STEPS: usize = 2;

const NETWORKS: [(&str, fn() -> Result<Network>); 6] = [
    ("transformer", networks::transformer),
    ("convolutions", networks::convolutions),
    ("llama", llama::llama),
    ("pyramid", held_out::pyramid),
    ("recurrent", held_out::recurrent),
    ("mixtures", held_out::mixtures),
];

/// What the recording knows: the order of the pass, that and the gradients' names, uses; or by hand. Where not all is known, the
/// prediction says so.
const WAYS: [&str; 4] = ["order", "names", "uses", "by-hand"];

fn device() -> Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(|| Device::new_cuda(0).expect("there is a GPU")).clone()
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_ok = match words[..] {
        [name, way] => one(name, way, false),
        [name, way, "report"] => one(name, way, true),
        _ => table(&words),
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

fn table(names: &[&str]) -> Outcome<bool> {
    if let Some(unknown) = names.iter().find(|name| NETWORKS.iter().all(|(known, _)| known != *name)) {
        return Err(format!("no network is called {unknown}").into());
    }
    println!(
        "{:14} {:6} {:24} {:>11} {:>19} {:>11}",
        "network", "known", "checkpointed", "peak", "predicted", "by hand"
    );
    let mut is_ok = true;
    for (name, _) in NETWORKS.iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
        let [order, names, uses, by_hand] = WAYS.map(|way| child(name, way));
        let by_hand = by_hand?;
        for (way, said) in [("order", order?), ("names", names?), ("uses", uses?)] {
            println!("{name:14} {way:6} {said} {by_hand:>11}");
            is_ok &= said.contains("about") || said.ends_with(&format!(" {by_hand}"));
        }
    }
    Ok(is_ok)
}

/// What a process of its own prints: candle keeps workspaces in statics.
fn child(name: &str, way: &str) -> Outcome<String> {
    let output = Command::new(std::env::current_exe()?).args([name, way]).output()?;
    let said = String::from_utf8(output.stdout)?.trim_end().to_owned();
    if output.status.success() { Ok(said) } else { Err(format!("{name} {way}: {said}").into()) }
}

/// Prints the modules, the peak and the predicted one, or the peak by hand.
fn one(name: &str, way: &str, as_report: bool) -> Outcome<bool> {
    let (_, network) = NETWORKS.iter().find(|(known, _)| *known == name).ok_or("no network has this name")?;
    let session = memtrace::builder().uses(way == "uses").max_entries(1 << 20).start()?;
    let network = network()?;
    match way {
        "order" => train(&network, false, &memtrace::candle::backward)?,
        "names" => train(&network, false, &|loss| with_names(&network, loss))?,
        _ => train(&network, way == "by-hand", &Tensor::backward)?,
    }
    let snapshot = session.snapshot();
    if as_report {
        println!("{}", snapshot.report());
        return Ok(true);
    }
    if way == "names" {
        layers_have_their_parameters(&network, &snapshot)?;
    }
    print(&snapshot, way)
}

/// Each part of the network that shares no variable has a row with the bytes of its variables.
fn layers_have_their_parameters(network: &Network, snapshot: &Snapshot) -> Outcome<()> {
    let device = snapshot.device(memtrace::Device::Cuda(0)).ok_or("the GPU was not recorded")?;
    let view = DeviceView::of(snapshot, device);
    let costs = view.at_peak().costs(Key::Layer);
    let users =
        |var: &Var| network.parts.iter().filter(|part| part.vars.iter().any(|own| own.id() == var.id())).count();
    for part in network.parts.iter().filter(|part| !part.vars.is_empty() && part.vars.iter().all(|var| users(var) == 1))
    {
        let theory: usize = part.vars.iter().map(|var| var.elem_count() * var.dtype().size_in_bytes()).sum();
        let row = costs.iter().find(|cost| cost.row.label == part.name).and_then(|cost| cost.parts);
        let found = row.map(|parts| parts[Part::Parameters as usize]);
        if found != Some(theory as u64) {
            return Err(format!("{}: {found:?} bytes of parameters, in theory {theory}", part.name).into());
        }
    }
    Ok(())
}

fn with_names(network: &Network, loss: &Tensor) -> Result<GradStore> {
    let found = memtrace::candle::backward(loss)?;
    for part in &network.parts {
        let names = (0..part.vars.len()).map(|at| format!("{}.{at}", part.name)).collect::<Vec<String>>();
        memtrace::candle::tag_vars(names.iter().zip(&part.vars));
    }
    memtrace::candle::tag_grads(&found);
    Ok(found)
}

fn print(snapshot: &Snapshot, way: &str) -> Outcome<bool> {
    let device = snapshot.device(memtrace::Device::Cuda(0)).ok_or("the GPU was not recorded")?;
    let peak = device.peak.bytes;
    if way == "by-hand" {
        println!("{peak}");
        return Ok(true);
    }
    let found = checkpoints(&DeviceView::of(snapshot, device));
    let found = found.iter().find(|found| found.count > 1).ok_or("nothing is found")?;
    let about = if found.is_exact { "" } else { "about " };
    println!("{:24} {peak:>11} {:>19}", found.modules, format!("{about}{}", found.peak_without));
    Ok(true)
}

fn train(network: &Network, by_hand: bool, backward: &dyn Fn(&Tensor) -> Result<GradStore>) -> Result<()> {
    let gradients = Gradients::default();
    let modules: Vec<Box<dyn Module>> =
        network.parts.iter().map(|part| module(part, by_hand.then_some(&gradients))).collect();
    let vars = network.parts.iter().flat_map(|part| part.vars.clone()).collect();
    let mut optimizer = SGD::new(vars, 0.01)?;
    for _ in 0..STEPS {
        let mut x = network.input.clone();
        for module in &modules {
            x = module.forward(&x)?;
        }
        let loss = if network.target.dtype() == DType::U32 { llama::loss } else { candle_nn::loss::mse };
        let loss = loss(&x, &network.target)?;
        let mut found = backward(&loss)?;
        gradients.add_to(&mut found)?;
        optimizer.step(&found)?;
    }
    Ok(())
}

/// Checkpointed if its name has a number and there are gradients to put its own to.
fn module(part: &networks::Part, gradients: Option<&Gradients>) -> Box<dyn Module> {
    let module = Traced::new(&part.name, part.module.clone());
    match gradients.filter(|_| part.name.contains(|c: char| c.is_ascii_digit())) {
        Some(gradients) => {
            let (module, vars, gradients) = (Arc::new(module), part.vars.clone(), gradients.clone());
            Box::new(Checkpointed { module, vars, gradients })
        }
        None => Box::new(module),
    }
}
