//! A program of which every state follows from the number of its steps: what a recording has to be, wherever it was cut off.

/// The next random number.
pub(crate) fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

/// At most 20 blocks of 1 to 7 MiB.
pub(crate) struct KnownProgram {
    random: u64,
    /// Of the live blocks, in MiB.
    pub(crate) sizes: Vec<usize>,
}

pub(crate) enum KnownStep {
    /// MiB of a new block, which is the last one.
    Alloc(usize),
    /// The place of a block, which the last one takes.
    Free(usize),
}

impl KnownProgram {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: seed, sizes: Vec::new() }
    }

    pub(crate) fn next(&mut self) -> KnownStep {
        let number = random(&mut self.random);
        if self.sizes.is_empty() || self.sizes.len() < 20 && number.is_multiple_of(2) {
            self.sizes.push(1 + number / 2 % 7);
            KnownStep::Alloc(self.sizes[self.sizes.len() - 1])
        } else {
            let at = number / 2 % self.sizes.len();
            self.sizes.swap_remove(at);
            KnownStep::Free(at)
        }
    }
}
