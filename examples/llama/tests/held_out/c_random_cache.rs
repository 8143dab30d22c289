//! A cache of decoded images with 20 slots; a miss replaces a random slot.

use rand::{Rng, SeedableRng, rngs::StdRng};

const SIDE: usize = 160;

struct Slot {
    key: u32,
    pixels: Vec<f32>,
}

struct Cache {
    slots: Vec<Slot>,
    bound: usize,
    misses: usize,
    rng: StdRng,
}

fn decode(key: u32) -> Vec<f32> {
    let mut pixels = Vec::with_capacity(3 * SIDE * SIDE);
    for i in 0..3 * SIDE * SIDE {
        pixels.push(((i as u32).wrapping_mul(2654435761) ^ key) as f32 / u32::MAX as f32);
    }
    pixels
}

impl Cache {
    fn get(&mut self, key: u32) -> &[f32] {
        if let Some(at) = self.slots.iter().position(|slot| slot.key == key) {
            return &self.slots[at].pixels;
        }
        self.misses += 1;
        let fresh = Slot { key, pixels: decode(key) };
        let at = if self.slots.len() < self.bound {
            self.slots.push(fresh);
            self.slots.len() - 1
        } else {
            let victim = self.rng.random_range(0..self.bound);
            self.slots[victim] = fresh;
            victim
        };
        &self.slots[at].pixels
    }
}

pub(super) fn run() -> super::Result<()> {
    let mut cache = Cache { slots: Vec::new(), bound: 20, misses: 0, rng: StdRng::seed_from_u64(5) };
    let mut requests = StdRng::seed_from_u64(11);
    let mut sum = 0f32;
    for _ in 0..300 {
        let pixels = cache.get(requests.random_range(0..40));
        let gray: Vec<f32> = pixels.chunks(3).map(|p| (p[0] + p[1] + p[2]) / 3.).collect();
        sum += gray.iter().sum::<f32>() / gray.len() as f32;
    }
    println!("{} misses of 300, mean {:.3}", cache.misses, sum / 300.);
    Ok(())
}
