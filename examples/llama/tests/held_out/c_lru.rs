//! An LRU cache of embeddings at its bound of 24; a few keys are hot, most come once in a while.

use super::Result;
use candle_core::{Device, Tensor};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::collections::HashMap;

struct Lru {
    capacity: usize,
    clock: u64,
    entries: HashMap<u32, (u64, Tensor)>,
}

impl Lru {
    fn get(&mut self, key: u32) -> Option<Tensor> {
        self.clock += 1;
        let entry = self.entries.get_mut(&key)?;
        entry.0 = self.clock;
        Some(entry.1.clone())
    }
    fn put(&mut self, key: u32, value: Tensor) {
        if self.entries.len() == self.capacity {
            let oldest = *self.entries.iter().min_by_key(|(_, entry)| entry.0).unwrap().0;
            self.entries.remove(&oldest);
        }
        self.entries.insert(key, (self.clock, value));
    }
}

fn embed(weights: &Tensor, key: u32) -> Result<Tensor> {
    let document: Vec<f32> = (0..64 * 32).map(|i| ((i + key * 7) % 101) as f32 / 101.).collect();
    let x = Tensor::from_vec(document, (64, 32), &Device::Cpu)?;
    Ok(x.matmul(weights)?.tanh()?)
}

pub(super) fn run() -> Result<()> {
    let mut rng = StdRng::seed_from_u64(7);
    let weights = Tensor::randn(0f32, 0.2, (32, 1024), &Device::Cpu)?;
    let mut lru = Lru { capacity: 24, clock: 0, entries: HashMap::new() };
    let (mut hits, mut score) = (0, 0f32);
    for _request in 0..400 {
        let hot = rng.random_bool(0.5);
        let key = if hot { rng.random_range(0..8) } else { rng.random_range(8..200) };
        let embedding = match lru.get(key) {
            Some(found) => found,
            None => embed(&weights, key)?,
        };
        hits += lru.entries.contains_key(&key) as usize;
        score += embedding.mean_all()?.to_scalar::<f32>()?;
        if !lru.entries.contains_key(&key) {
            lru.put(key, embedding);
        }
    }
    println!("{hits} hits of 400, score {score:.3}");
    Ok(())
}
