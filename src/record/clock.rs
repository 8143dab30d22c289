//! Nanoseconds since the recording began, computed from the processor's time counter. Reading the counter costs a
//! third of reading the system clock.
//!
//! The counter is compared with the system clock at least once a second. After each comparison, time advances at the
//! rate between this comparison and the one before, for at most as long as the two were apart. So the error of one
//! reading (about 10 ns) does not accumulate, and the next comparison shows that the machine slept. Time never goes
//! backwards, because it is read under the device's lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::ticks;

/// The rate that any clock of this process measured last; the next clock starts with it. 0 if none was measured.
static LAST_RATE: AtomicU64 = AtomicU64::new(0);

/// Two readings must be at least this far apart to give a rate.
const LEAST_NS: u64 = 1_000_000;
const MOST_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
struct ClockReading {
    ns: u64,
    ticks: u64,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Clock {
    last: u64,
    from: ClockReading,
    /// Nanoseconds per tick, in units of 2⁻³²; 0 if unknown.
    rate: u64,
    /// Ticks after `from` until the next comparison.
    span: u64,
    /// Set once the counter ran ahead of the system clock, because the cores' counters differ. From then on, only the
    /// system clock is used.
    is_unsynced: bool,
    began: Instant,
}

impl Clock {
    /// A clock that counts nanoseconds since `began`. `new` reads neither the counter nor the system clock, because
    /// that would need more stack: a measurement's first block calls `new` on the program's stack.
    pub(crate) fn new(began: Instant) -> Self {
        Self { began, from: ClockReading { ns: 0, ticks: 0 }, rate: 0, span: 0, last: 0, is_unsynced: false }
    }

    #[inline]
    pub(crate) fn now(&mut self) -> u64 {
        self.at(ticks::read())
    }

    /// The time at which the counter was at `ticks`, but never before the last time that was returned.
    #[inline]
    pub(crate) fn at(&mut self, ticks: u64) -> u64 {
        let since = ticks.wrapping_sub(self.from.ticks);
        let ns = if since < self.span { self.from.ns + scaled(since, self.rate) } else { self.far(ticks) };
        self.last = self.last.max(ns);
        self.last
    }

    #[cold]
    fn far(&mut self, ticks: u64) -> u64 {
        // `ticks` may lie after the last comparison. A new comparison may set a rate that also holds for the time
        // before.
        self.before(ticks).unwrap_or_else(|| {
            let now = self.recalibrate();
            self.before(ticks).unwrap_or(now)
        })
    }

    /// The time at which the counter was at `ticks`. `None` if that was after the last comparison, or more than `span`
    /// ticks before it: the counter may have jumped.
    fn before(&self, ticks: u64) -> Option<u64> {
        let before = self.from.ticks.wrapping_sub(ticks);
        (before <= self.span).then(|| self.from.ns.saturating_sub(scaled(before, self.rate)))
    }

    /// The current time by the system clock. Unlike [`now`](Self::now), this changes nothing.
    pub(crate) fn peek(&self) -> u64 {
        self.last.max(self.read_clocks().0.ns)
    }

    fn recalibrate(&mut self) -> u64 {
        let (read_clocks, undisturbed) = self.read_clocks();
        let apart = read_clocks.ns.saturating_sub(self.from.ns);
        // If the counter is this far ahead of the system clock, the cores' counters are not synchronised.
        self.is_unsynced |= self.last > read_clocks.ns.saturating_add(LEAST_NS);
        if self.is_unsynced {
            self.rate = 0;
            self.span = 0;
        } else if undisturbed && self.from.ticks == 0 {
            // An interrupted first reading would distort the first rate.
            self.from = read_clocks;
            self.rate = LAST_RATE.load(Relaxed);
            self.span = self.ticks_in(LEAST_NS);
        } else if undisturbed && apart >= LEAST_NS && ticks::are_steady() {
            self.learn(read_clocks, apart);
            LAST_RATE.store(self.rate, Relaxed);
        }
        read_clocks.ns
    }

    fn learn(&mut self, read_clocks: ClockReading, apart: u64) {
        let ticks = read_clocks.ticks.wrapping_sub(self.from.ticks);
        let rate = u64::try_from((u128::from(apart) << 32) / u128::from(ticks.max(1))).unwrap_or(0);
        let agrees = self.rate == 0 || rate.abs_diff(self.rate) <= rate >> 10;
        // A rate that differs from the one before is not used. The rate that is measured next is used in any case.
        self.rate = if agrees { rate } else { 0 };
        self.from = read_clocks;
        self.span = self.ticks_in(apart.min(MOST_NS));
    }

    /// Reads both clocks. The flag is false if something interrupted the reading: then no rate may be computed from
    /// it.
    fn read_clocks(&self) -> (ClockReading, bool) {
        let before = ticks::read();
        let ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let after = ticks::read();
        (ClockReading { ns, ticks: before }, after.wrapping_sub(before) < ticks::of_two_us())
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
    fn a_moment_before_the_last_comparison_has_its_own_time() {
        let mut clock = Clock::new(Instant::now());
        (clock.from, clock.rate) = (ClockReading { ns: 1_000_000, ticks: 10_000_000 }, 1 << 31);
        clock.span = 4_000_000;
        let times = [9_000_000, 8_000_000, 10_500_000].map(|ticks| clock.at(ticks));
        assert_eq!(times, [500_000, 500_000, 1_250_000], "and time never goes back");
    }

    #[test]
    fn a_moment_before_the_rate_was_known_has_its_own_time() {
        let began = Instant::now();
        let reading = || loop {
            let (both, undisturbed) = Clock::new(began).read_clocks();
            if undisturbed {
                return both;
            }
        };
        let from = reading();
        std::thread::sleep(Duration::from_millis(2));
        let sent = reading();
        std::thread::sleep(Duration::from_millis(20));
        let told = loop {
            let mut clock = Clock { from, ..Clock::new(began) };
            let time = clock.at(sent.ticks);
            // Otherwise this comparison was disturbed.
            if clock.rate > 0 {
                break time;
            }
        };
        assert!(told.abs_diff(sent.ns) < 1_000_000, "{told} {}", sent.ns);
    }

    #[test]
    fn a_rate_that_changed_is_looked_at_twice() {
        let mut clock = Clock::new(Instant::now());
        let read_clocks = |ns, ticks| ClockReading { ns, ticks };
        (clock.from, clock.rate) = (read_clocks(0, 0), 0);
        clock.learn(read_clocks(2_000_000, 4_000_000), 2_000_000);
        assert_eq!((clock.rate, clock.span), (1 << 31, 4_000_000));
        clock.learn(read_clocks(3_000_000, 7_000_000), 1_000_000);
        assert_eq!((clock.rate, clock.span), (0, 0));
        clock.learn(read_clocks(5_000_000, 13_000_000), 2_000_000);
        assert_eq!(clock.span, 6_000_000);
    }
}
