//! Time within one device's log: the system's clock, read through the processor's at a third of the price.
//!
//! Between two looks at the system's clock time goes on by the processor's ticks, at the rate that the last
//! two looks showed, and for no longer than lay between those, at most a second. So an error of a look,
//! some ten nanoseconds, does not grow, and a clock that stood still or jumped (a machine that slept)
//! is noticed at the next look. Time never goes back.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::ticks;

/// The rate that a clock of this process found last, for the next one to begin with; 0 is none.
static LAST_RATE: AtomicU64 = AtomicU64::new(0);

/// Two looks this far apart say what a tick is worth.
const LEAST_NS: u64 = 1_000_000;
const MOST_NS: u64 = 1_000_000_000;
/// A look that takes more ticks than this was interrupted: it says what time it is, not what a tick is worth.
const INTERRUPTED: u64 = 5_000;
/// Looks that are tried for a first one.
const TRIES: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Look {
    ns: u64,
    ticks: u64,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Clock {
    /// What was said last.
    last: u64,
    from: Look,
    /// Nanoseconds a tick, in units of 2⁻³²; 0 is not known.
    rate: u64,
    /// So many ticks after `from` it is time for another look.
    span: u64,
    /// Ticks are not to be gone by.
    is_wild: bool,
    began: Instant,
}

impl Clock {
    /// Nanoseconds since `began`.
    pub(crate) fn new(began: Instant) -> Self {
        let mut clock = Self { began, from: Look { ns: 0, ticks: 0 }, rate: 0, span: 0, last: 0, is_wild: false };
        // A first look that was interrupted would be learnt from.
        clock.from = (0..TRIES).map(|_| clock.look()).find(|(_, is_sharp)| *is_sharp).unwrap_or_else(|| clock.look()).0;
        clock.rate = LAST_RATE.load(Relaxed);
        clock.span = clock.ticks_in(LEAST_NS);
        clock
    }

    #[inline]
    pub(crate) fn now(&mut self) -> u64 {
        let since = ticks::read().wrapping_sub(self.from.ticks);
        let ns = if since < self.span { self.from.ns + scaled(since, self.rate) } else { self.look_again() };
        self.last = self.last.max(ns);
        self.last
    }

    /// The same without remembering it.
    pub(crate) fn peek(&self) -> u64 {
        self.last.max(self.look().0.ns)
    }

    #[cold]
    fn look_again(&mut self) -> u64 {
        let (look, is_sharp) = self.look();
        let apart = look.ns.saturating_sub(self.from.ns);
        // Ticks that ran ahead of the system's clock by so much are not those of one clock: each core has its own.
        self.is_wild |= self.last > look.ns.saturating_add(LEAST_NS);
        if self.is_wild {
            (self.rate, self.span) = (0, 0);
        } else if is_sharp && apart >= LEAST_NS && ticks::are_steady() {
            self.learn(look, apart);
            LAST_RATE.store(self.rate, Relaxed);
        }
        look.ns
    }

    fn learn(&mut self, look: Look, apart: u64) {
        let ticks = look.ticks.wrapping_sub(self.from.ticks);
        let rate = u64::try_from((u128::from(apart) << 32) / u128::from(ticks.max(1))).unwrap_or(0);
        let agrees = self.rate == 0 || rate.abs_diff(self.rate) <= rate >> 10;
        // A rate that changed is not believed before it was seen twice.
        self.rate = if agrees { rate } else { 0 };
        self.from = look;
        self.span = self.ticks_in(apart.min(MOST_NS));
    }

    /// The time and the ticks at one moment; whether nothing came in between.
    fn look(&self) -> (Look, bool) {
        let before = ticks::read();
        let ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let after = ticks::read();
        (Look { ns, ticks: before }, after.wrapping_sub(before) < INTERRUPTED)
    }

    fn ticks_in(&self, ns: u64) -> u64 {
        (u128::from(ns) << 32).checked_div(u128::from(self.rate)).map_or(0, |ticks| ticks as u64)
    }
}

#[inline]
fn scaled(ticks: u64, rate: u64) -> u64 {
    ((u128::from(ticks) * u128::from(rate)) >> 32) as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_goes_as_the_systems_clock_does_and_never_back() {
        let began = Instant::now();
        let mut clock = Clock::new(began);
        let (mut last, mut worst) = (0, 0);
        while began.elapsed() < Duration::from_millis(60) {
            let (before, now, after) = (began.elapsed(), clock.now(), began.elapsed());
            assert!(now >= last, "{last} {now}");
            last = now;
            let (before, after) = (before.as_nanos() as u64, after.as_nanos() as u64);
            worst = worst.max(before.saturating_sub(now)).max(now.saturating_sub(after));
        }
        assert!(worst < 100_000, "{worst} ns off");
        assert!(clock.peek() >= last);
    }

    #[test]
    fn ticks_that_stand_still_or_jump_do_not_carry_it_away() {
        let began = Instant::now();
        let mut clock = Clock::new(began);
        clock.rate = 1 << 32;
        clock.span = u64::MAX;
        for ticks in [ticks::read().wrapping_add(1 << 40), ticks::read().wrapping_sub(1 << 40)] {
            clock.from.ticks = ticks;
            clock.span = 1 << 30;
            let (before, now) = (began.elapsed().as_nanos() as u64, clock.now());
            assert!(now.abs_diff(before) < 1_000_000_000, "{before} {now}");
        }
    }

    #[test]
    fn a_rate_that_changed_is_looked_at_twice() {
        let mut clock = Clock::new(Instant::now());
        let look = |ns, ticks| Look { ns, ticks };
        (clock.from, clock.rate) = (look(0, 0), 0);
        clock.learn(look(2_000_000, 4_000_000), 2_000_000);
        assert_eq!((clock.rate, clock.span), (1 << 31, 4_000_000));
        clock.learn(look(3_000_000, 7_000_000), 1_000_000);
        assert_eq!((clock.rate, clock.span), (0, 0));
        clock.learn(look(5_000_000, 13_000_000), 2_000_000);
        assert_eq!(clock.span, 6_000_000);
    }
}
