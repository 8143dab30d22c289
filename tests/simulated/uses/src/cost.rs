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
    let ratios: Vec<f64> = with.iter().zip(&without).map(|(with, without)| with.div_duration_f64(*without)).collect();
    let (without, with) = (median(without), median(with));
    let each = with.saturating_sub(without).as_nanos() as f64 / launches as f64;
    println!("| {name} | {launches} | {without:.2?} | {with:.2?} | {:.3} | {each:.0} ns |", middle(ratios));
    Ok(())
}

/// The time of the second step of a recording, whose tables have grown in the first, and how many kernels it launched.
fn recorded(step: &mut Step, is_with_uses: bool) -> Outcome<(Duration, u64)> {
    let session = memtrace::builder().uses(is_with_uses).start()?;
    let launches = || session.snapshot().gpu_work.as_ref().map_or(0, |work| work.totals.launches);
    step()?;
    let before = launches();
    let began = Instant::now();
    step()?;
    let took = began.elapsed();
    Ok((took, launches() - before))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn middle(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_unstable_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}
