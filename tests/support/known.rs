//! A program whose state follows from the number of its steps. So it is known what a recording must be, wherever it was
//! cut off.

/// The next random number.
pub(crate) fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

/// A program with at most 20 blocks of 1 to 7 MiB.
pub(crate) struct KnownProgram {
    random: u64,
    /// The sizes of the live blocks, in MiB.
    pub(crate) sizes: Vec<usize>,
}

pub(crate) enum KnownStep {
    /// Allocates a block of this many MiB, which becomes the last one.
    Alloc(usize),
    /// Frees the block at this index; the last block takes its place.
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
