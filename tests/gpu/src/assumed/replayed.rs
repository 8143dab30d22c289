//! The model of the driver's pool that `cargo memtrace replay` uses: a sequence of requests at release thresholds.

use memtrace::analysis::AllocatorModel;

use super::held::Held;
use super::{Assumption, row};
use crate::calls;
use crate::gpu::Gpu;
use crate::raw::Outcome;

pub(super) const ROWS: &[Assumption] = &[
    row("pool: 200 requests, RESERVED as in the model, threshold 0", "200 times", |gpu| replayed(gpu, 0)),
    row("pool: 200 requests, RESERVED as in the model, 100 MiB", "200 times", |gpu| replayed(gpu, 100 << 20)),
    row("pool: 200 requests, RESERVED as in the model, no release", "200 times", |gpu| replayed(gpu, u64::MAX)),
];

/// Blocks of more than half a step: each has a segment of its own, so it does not matter which gap a pool prefers.
const SIZES: [usize; 4] = [17 << 20, 20 << 20, 31 << 20, 32 << 20];

/// How often the pool has reserved as much as the model.
fn replayed(gpu: &Gpu, threshold: u64) -> Outcome<String> {
    calls::set_threshold(gpu.pool, threshold)?;
    let same = steps(gpu, threshold);
    calls::set_threshold(gpu.pool, 0)?;
    Ok(format!("{} times", same?))
}

fn steps(gpu: &Gpu, threshold: u64) -> Outcome<usize> {
    let mut model = AllocatorModel::DriverPool { threshold }.build(None);
    let (mut live, mut same): (Vec<(Held, u64)>, usize) = (Vec::new(), 0);
    let mut random = 1_usize;
    for _ in 0..200 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let choice = random >> 40;
        match choice % 8 {
            0..4 if live.len() < 12 => {
                let size = SIZES[choice / 8 % SIZES.len()];
                live.push((Held::pool(size)?, model.alloc(size as u64, 0, u64::MAX).unwrap_or(0)));
            }
            0..7 if !live.is_empty() => {
                let (block, address) = live.swap_remove(choice / 8 % live.len());
                block.free()?;
                model.free(address);
            }
            _ => {
                calls::synchronise_all()?;
                model.synchronise();
            }
        }
        same += usize::from(gpu.reserved() == model.reserved());
    }
    Ok(same)
}
