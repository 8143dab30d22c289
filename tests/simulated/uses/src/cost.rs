//! What uses cost in a training step: the same step in recordings without and with uses, in turn.

use std::time::{Duration, Instant};

use candle_core::Device;

use crate::Outcome;
use crate::training::{self, Step};

const ROUNDS: usize = 40;

pub(crate) fn print() -> Outcome<bool> {
    println!("| step | kernels | median without uses | with uses | ratio, median of {ROUNDS} pairs | a kernel |");
    println!("|---|---|---|---|---|---|");
    let device = Device::new_cuda(0)?;
    print_row("mlp", training::mlp_step(&device)?)?;
    print_row("resnet-50", training::resnet_step(&device)?)?;
    Ok(true)
}

fn print_row(name: &str, mut step: Step) -> Outcome<()> {
    let (mut without, mut with, mut launches) = (Vec::new(), Vec::new(), 0);
    // The first round is left out: kernels are loaded in it.
    for round in 0..=ROUNDS {
        let (plain, _) = recorded(&mut step, false)?;
        let (used, seen) = recorded(&mut step, true)?;
        if round > 0 {
            without.push(plain);
            with.push(used);
        }
        launches = seen;
    }
    let ratios = with.iter().zip(&without).map(|(with, without)| with / without).collect();
    let [without, with, ratio] = [without, with, ratios].map(median);
    let [shown_without, shown_with] = [without, with].map(Duration::from_secs_f64);
    let each = 1e9 * (with - without) / launches as f64;
    println!("| {name} | {launches} | {shown_without:.2?} | {shown_with:.2?} | {ratio:.3} | {each:.0} ns |");
    Ok(())
}

/// The seconds of the second step of a recording, whose tables have grown in the first, and how many kernels it launched.
fn recorded(step: &mut Step, is_with_uses: bool) -> Outcome<(f64, u64)> {
    let session = memtrace::builder().uses(is_with_uses).start()?;
    let launches = || session.snapshot().gpu_work.as_ref().map_or(0, |work| work.totals.launches);
    step()?;
    let before = launches();
    let began = Instant::now();
    step()?;
    let took = began.elapsed().as_secs_f64();
    Ok((took, launches() - before))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
