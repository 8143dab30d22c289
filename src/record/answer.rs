//! The stored answer to a yes-or-no question. There is no lock, because a forked child would inherit it while it is
//! locked: so two threads may ask at the same time.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

#[derive(Debug)]
pub(crate) struct Answer(AtomicU8);

impl Answer {
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(UNKNOWN))
    }

    pub(crate) fn get_or(&self, ask: impl FnOnce() -> bool) -> bool {
        match self.0.load(Relaxed) {
            UNKNOWN => {
                let answer = ask();
                self.0.store(if answer { YES } else { NO }, Relaxed);
                answer
            }
            answer => answer == YES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept() {
        for first in [false, true] {
            let answer = Answer::new();
            assert_eq!([answer.get_or(|| first), answer.get_or(|| !first)], [first; 2]);
        }
    }
}
