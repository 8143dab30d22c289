//! Trains small networks with a copy of candle that says which node its backward pass has reached, and compares with the
//! pairings of the recording, which knows the order of the nodes, uses of blocks, or both. Prints for each network the bytes
//! that its backward passes allocated on the training thread: right, unknown, wrong; how much of what is unknown is of no call
//! of the recording; and what other threads allocated, which is never paired. Fails if a byte is wrong or less is right than
//! must be. `cargo xtask backward` builds it. The name of a network selects it. `twins` shows what a log without either
//! cannot say.

mod check;
mod held_out;
mod held_out_uses;
mod models;
mod truth;
mod twins;

use std::process::ExitCode;
use std::sync::OnceLock;

use candle_core::backprop::GradStore;
use candle_core::{Device, Result, Tensor};
use check::Bytes;
use truth::Truth;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// Where the networks are trained: on the first GPU with the feature `cuda`.
fn device() -> Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    let gpu = || Device::new_cuda(0).expect("there is a GPU");
    DEVICE.get_or_init(|| if cfg!(feature = "cuda") { gpu() } else { Device::Cpu }).clone()
}

type Backward<'a> = &'a dyn Fn(&Tensor) -> Result<GradStore>;

/// What a recording knows of the passes (the order of their nodes, the uses of blocks, or both), and the size below which blocks are not
/// recorded: the usual one, or none. On the CPU there are no uses; on a GPU all blocks are recorded.
struct Way(&'static str, u64);

const CPU: [Way; 2] = [Way("order", 1024), Way("order", 0)];
const GPU: [Way; 3] = [Way("order", 1024), Way("uses", 1024), Way("both", 1024)];

/// A network, and the least percentages of right bytes in each way, on the CPU and on a GPU.
struct Network(&'static str, fn(Backward<'_>) -> Result<()>, [f64; CPU.len()], [f64; GPU.len()]);

const NETWORKS: [Network; 13] = [
    Network("plain", models::plain, [97., 96.], [99., 97., 99.]),
    Network("residual", models::residual, [74., 97.], [99., 99., 99.]),
    Network("branches", models::branches, [98., 96.], [99., 98., 99.]),
    Network("shared", models::shared, [87., 93.], [95., 95., 95.]),
    Network("attention", models::attention, [94., 94.], [97., 97., 99.]),
    Network("gan", models::gan, [70., 95.], [99., 99., 99.]),
    Network("lstm", models::lstm, [98., 96.], [99., 99., 99.]),
    Network("lora", models::lora, [97., 95.], [99., 96., 99.]),
    Network("u_net", held_out::u_net, [98., 95.], [99., 96., 99.]),
    Network("experts", held_out::experts, [91., 93.], [95., 90., 99.]),
    Network("recurrent", held_out::recurrent, [61., 89.], [91., 86., 91.]),
    Network("q_learning", held_out_uses::q_learning, [80., 96.], [99., 93., 99.]),
    Network("contrast", held_out_uses::contrast, [92., 96.], [97., 91., 98.]),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_asked =
        |name: &str| words.iter().all(|word| word.starts_with("--")) || words.iter().any(|word| word == name);
    let is_full = words.iter().any(|word| word == "--full");
    println!(
        "{:10} {:6} {:>9} {:>12} {:>7} {:>8} {:>8} {:>6} {:>14}",
        "network", "known", "threshold", "bytes", "right", "unknown", "no call", "wrong", "other threads"
    );
    let mut failed = false;
    for network in NETWORKS.iter().filter(|network| is_asked(network.0)) {
        let Network(name, run, of_cpu, of_gpu) = network;
        let (ways, least) = if cfg!(feature = "cuda") { (&GPU[..], &of_gpu[..]) } else { (&CPU[..], &of_cpu[..]) };
        for (way, least) in ways.iter().zip(least) {
            match measured(*run, way, is_full) {
                Ok(bytes) => {
                    println!("{name:10} {:6} {:>9} {bytes}", way.0, way.1);
                    failed |= bytes.wrong > 0 || bytes.right_part() < *least;
                }
                Err(error) => {
                    println!("{name}: {error}");
                    failed = true;
                }
            }
        }
    }
    if is_asked("twins") {
        failed |= !twins::check().unwrap_or_else(|error| {
            println!("twins: {error}");
            false
        });
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn measured(run: fn(Backward<'_>) -> Result<()>, Way(known, threshold): &Way, is_full: bool) -> Result<Bytes> {
    let recording = memtrace::builder().min_size(*threshold).uses(*known != "order");
    let session = recording.start().map_err(candle_core::Error::wrap)?;
    let truth = Truth::default();
    run(&|loss| {
        truth.during(loss, || if *known == "uses" { loss.backward() } else { memtrace::candle::backward(loss) })
    })?;
    let snapshot = session.snapshot();
    Ok(Bytes::of(&snapshot, &truth, is_full))
}
