//! A heap keeps the 24 examples with the highest loss of a long stream.

use super::Result;
use candle_core::{Device, Tensor};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

struct Example {
    loss: f32,
    image: Tensor,
}

impl Ord for Example {
    fn cmp(&self, other: &Self) -> Ordering {
        self.loss.total_cmp(&other.loss)
    }
}
impl PartialOrd for Example {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Example {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Example {}

pub(super) fn run() -> Result<()> {
    let mut rng = StdRng::seed_from_u64(3);
    let weights = Tensor::randn(0f32, 0.1, (256, 8), &Device::Cpu)?;
    let mut hardest: BinaryHeap<Reverse<Example>> = BinaryHeap::new();
    for _ in 0..240 {
        let level = rng.random_range(0.1f32..1.);
        let image = Tensor::randn(0f32, level, (256, 256), &Device::Cpu)?;
        let loss = image.matmul(&weights)?.sqr()?.mean_all()?.to_scalar::<f32>()?;
        hardest.push(Reverse(Example { loss, image }));
        if hardest.len() > 24 {
            hardest.pop();
        }
    }
    let Reverse(easiest) = hardest.peek().unwrap();
    println!("{} kept, from loss {:.3}, {:?}", hardest.len(), easiest.loss, easiest.image.shape());
    Ok(())
}
