//! Trains small networks with a copy of candle that says which node its backward pass has reached, and compares with the
//! pairings of the recording, which knows the order of the nodes at most. Prints for each network the bytes that its backward
//! passes allocated on the training thread: right, unknown, wrong; and what other threads allocated, which is never paired. Fails
//! if a byte is wrong or less is right than must be. `cargo xtask backward` builds it. The name of a network selects it.

mod check;
mod held_out;
mod models;
mod truth;

use std::process::ExitCode;
use std::sync::OnceLock;

use candle_core::backprop::GradStore;
use candle_core::{Device, Result, Tensor};
use check::Bytes;
use truth::Truth;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// The usual threshold, and none: smaller blocks are not recorded, and the calls that return them are unknown.
const THRESHOLDS: [u64; 2] = [1024, 0];

/// Where the networks are trained: on the first GPU with the feature `cuda`.
fn device() -> Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    let gpu = || Device::new_cuda(0).expect("there is a GPU");
    DEVICE.get_or_init(|| if cfg!(feature = "cuda") { gpu() } else { Device::Cpu }).clone()
}

/// What the recording knows of the passes: the order of their nodes, the uses of blocks, or both. On the CPU there are no uses.
const EVIDENCE: &[&str] = if cfg!(feature = "cuda") { &["order", "uses", "both"] } else { &["order"] };

type Backward<'a> = &'a dyn Fn(&Tensor) -> Result<GradStore>;

/// A network, and the least percentages of right bytes with each threshold.
struct Network(&'static str, fn(Backward<'_>) -> Result<()>, [f64; 2]);

const NETWORKS: [Network; 11] = [
    Network("plain", models::plain, [97., 96.]),
    Network("residual", models::residual, [74., 97.]),
    Network("branches", models::branches, [98., 96.]),
    Network("shared", models::shared, [87., 93.]),
    Network("attention", models::attention, [94., 94.]),
    Network("gan", models::gan, [70., 95.]),
    Network("lstm", models::lstm, [98., 96.]),
    Network("lora", models::lora, [97., 95.]),
    Network("u_net", held_out::u_net, [98., 95.]),
    Network("experts", held_out::experts, [91., 93.]),
    Network("recurrent", held_out::recurrent, [61., 89.]),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_asked =
        |name: &str| words.iter().all(|word| word.starts_with("--")) || words.iter().any(|word| word == name);
    let is_full = words.iter().any(|word| word == "--full");
    println!(
        "{:10} {:6} {:>9} {:>12} {:>7} {:>8} {:>6} {:>14}",
        "network", "known", "threshold", "bytes", "right", "unknown", "wrong", "other threads"
    );
    let mut failed = false;
    for Network(name, run, least) in NETWORKS.iter().filter(|network| is_asked(network.0)) {
        for (evidence, (threshold, least)) in EVIDENCE.iter().flat_map(|evidence| {
            THRESHOLDS.into_iter().zip(least).map(move |row| (*evidence, row))
        }) {
            match measured(*run, threshold, evidence, is_full) {
                Ok(bytes) => {
                    println!("{name:10} {evidence:6} {threshold:>9} {bytes}");
                    failed |= bytes.wrong > 0 || bytes.right_part() < *least;
                }
                Err(error) => {
                    println!("{name}: {error}");
                    failed = true;
                }
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn measured(run: fn(Backward<'_>) -> Result<()>, threshold: u64, evidence: &str, is_full: bool) -> Result<Bytes> {
    let recording = memtrace::builder().min_size(threshold).uses(evidence != "order");
    let session = recording.start().map_err(candle_core::Error::wrap)?;
    let truth = Truth::default();
    run(&|loss| {
        truth.during(loss, || if evidence == "uses" { loss.backward() } else { memtrace::candle::backward(loss) })
    })?;
    let snapshot = session.snapshot();
    Ok(Bytes::of(&snapshot, &truth, is_full))
}
