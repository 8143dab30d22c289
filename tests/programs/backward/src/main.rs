//! Trains small networks with a copy of candle that says which node its backward pass has reached, and compares with the
//! pairings of the recording, which knows the order of the nodes at most. Prints for each network the bytes that its backward
//! passes allocated on the training thread: right, unknown, wrong; and what other threads allocated, which is never paired. Fails
//! if a byte is wrong or less is right than must be. `cargo xtask backward` builds it. The name of a network selects it.

mod check;
mod held_out;
mod models;
mod truth;

use std::process::ExitCode;

use candle_core::Result;
use candle_core::Tensor;
use candle_core::backprop::GradStore;
use check::Bytes;
use truth::Truth;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// The usual threshold, and none: smaller blocks are not recorded, and the calls that return them are unknown.
const THRESHOLDS: [u64; 2] = [1024, 0];

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
        "{:10} {:>9} {:>12} {:>7} {:>8} {:>6} {:>14}",
        "network", "threshold", "bytes", "right", "unknown", "wrong", "other threads"
    );
    let mut failed = false;
    for Network(name, run, least) in NETWORKS.iter().filter(|network| is_asked(network.0)) {
        for (threshold, least) in THRESHOLDS.into_iter().zip(least) {
            match measured(*run, threshold, is_full) {
                Ok(bytes) => {
                    println!("{name:10} {threshold:>9} {bytes}");
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

fn measured(run: fn(Backward<'_>) -> Result<()>, threshold: u64, is_full: bool) -> Result<Bytes> {
    let session = memtrace::builder().min_size(threshold).start().map_err(candle_core::Error::wrap)?;
    let truth = Truth::default();
    run(&|loss| truth.during(loss, || memtrace::candle::backward(loss)))?;
    let snapshot = session.snapshot();
    Ok(Bytes::of(&snapshot, &truth, is_full))
}
