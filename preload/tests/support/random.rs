//! Allocates at random as programs in Rust do, on as many threads as the first argument says; the second one is the seed.

use std::collections::HashMap;
use std::sync::Barrier;

const MOST: usize = 220_000;

enum Held {
    Bytes(Vec<u8>),
    Boxed(Box<[u64]>),
    Text(String),
    Map(HashMap<u64, [u64; 7]>),
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }
}

fn made(random: &mut Random) -> Held {
    let size = random.below(MOST);
    match random.below(5) {
        0 => Held::Bytes(vec![1; size]),
        1 => Held::Bytes((0..size / 8).flat_map(|n| n.to_le_bytes()).collect()),
        2 => Held::Boxed(vec![0; size / 8].into_boxed_slice()),
        3 => Held::Text("text".repeat(size / 4)),
        _ => Held::Map((0..size as u64 / 128).map(|n| (n, [n; 7])).collect()),
    }
}

fn change(held: &mut Held, random: &mut Random) {
    match held {
        Held::Bytes(bytes) => bytes.reserve_exact(random.below(MOST / 4)),
        Held::Boxed(words) => *words = words.iter().copied().take(random.below(1000)).collect(),
        Held::Text(text) => text.shrink_to(random.below(MOST)),
        Held::Map(map) => map.retain(|key, words| (key ^ words[0]) % 3 == 0),
    }
}

fn work(seed: u64, barrier: &Barrier) {
    let mut random = Random(seed);
    let mut slots: [Option<Held>; 20] = Default::default();
    for _ in 0..600 {
        let slot = &mut slots[random.below(20)];
        match slot {
            None => *slot = Some(made(&mut random)),
            Some(held) if random.below(2) == 0 => change(held, &mut random),
            Some(_) => *slot = None,
        }
    }
    std::mem::forget(slots);
    barrier.wait();
    let large: Vec<Vec<u8>> = (0..100).map(|_| Vec::with_capacity(2 * MOST)).collect();
    barrier.wait();
    drop(large);
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|argument| argument.parse::<u64>().unwrap());
    let (threads, seed) = (numbers.next().unwrap(), numbers.next().unwrap());
    let barrier = &Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        (1..threads).for_each(|n| drop(scope.spawn(move || work(seed * 100 + n, barrier))));
        work(seed, barrier);
    });
}
