//! Trend test: does a noisy series keep growing?
//!
//! Few runs cannot distinguish a leak from a cache that fills up, nor show a container that doubles its capacity. So a
//! series that reached a new maximum late is unsettled and needs more runs. The tests below measure false alarms in
//! noise; the library's `tests/verdicts` runs whole programs.

/// How a series goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trend {
    /// It does not grow; it may go up and down.
    Steady,
    /// It stopped growing; the last growth was in this run, counted from 0.
    Settled(usize),
    /// It grew recently, but not often enough for a verdict.
    Unsettled,
    /// It grows by doubling, with longer and longer pauses.
    Doubling,
    /// It grows by `slope` with each run, within a 99.9 % confidence interval of ± `give_or_take`.
    Growing {
        /// Bytes or blocks with each run.
        slope: f64,
        /// Half the width of the interval.
        give_or_take: f64,
    },
}

impl Trend {
    /// Whether the series keeps growing.
    pub fn goes_on(self) -> bool {
        matches!(self, Self::Growing { .. } | Self::Doubling)
    }
}

/// A growing series reaches at least this many new maxima after the warm-up.
const MAXIMA: usize = 3;
/// A long series is compared in this many parts, each with at least `LEAST_PART` runs.
const PARTS: usize = 5;
const LEAST_PART: usize = 5;
/// With fewer steps from one run to the next, a series can keep step with the runs by chance.
const LEAST_STEPS: usize = 16;

/// If `runs` runs led to a series' last maximum: the number of runs after which the series is settled. A container
/// that doubles its capacity reaches its next maximum within that number.
pub fn settles_after(runs: usize) -> usize {
    runs * 9 / 4 + 2
}

/// Whether a series reached a new maximum after the warm-up, or grew by doubling in the warm-up, and has not settled
/// since.
pub(super) fn is_unsettled(series: &[f64], warmup: usize) -> bool {
    let last = maxima(series).last().map_or(0, |at| at + 1);
    series.len() < settles_after(last) && (last > warmup || doublings(series) >= MAXIMA)
}

/// Whether a series reaches new maxima in at least a quarter of the runs after the warm-up. The series of a thread
/// pool that occasionally adds a thread does not.
pub(super) fn is_frequent(series: &[f64], warmup: usize) -> bool {
    late_maxima(series, warmup) * 4 >= series.len().saturating_sub(warmup)
}

/// How many runs after the warm-up reached a new maximum.
pub(super) fn late_maxima(series: &[f64], warmup: usize) -> usize {
    maxima(series).into_iter().filter(|at| *at >= warmup).count()
}

/// The mean growth per run since the warm-up.
pub(super) fn rise(series: &[f64], warmup: usize) -> f64 {
    let before = series.get(warmup.saturating_sub(1)).copied().unwrap_or(0.0);
    let runs = series.len().saturating_sub(warmup).max(1);
    series.last().map_or(0.0, |last| (last - before) / runs as f64)
}

/// Whether the last value exceeds the whole first half. Memory that comes and goes can reach a maximum by chance, but
/// seldom ends there.
pub fn ends_higher(series: &[f64]) -> bool {
    let first = series.iter().take(series.len() / 2).copied().fold(0.0, f64::max);
    series.last().is_some_and(|last| *last > first)
}

/// Whether a series grows by doubling, like a container, or like several containers that are filled in turn. The
/// highest values of the first eighth, fourth and half of the runs, and of all runs, must each be higher than the one
/// before by two fifths or more. The series must not fall after the warm-up.
///
/// The runs of the warm-up count, too, because each doubling takes as long as all before it: the second half of the
/// runs has room for only one.
pub(super) fn doubles(series: &[f64], warmup: usize) -> bool {
    let highest = |part| series.iter().take(series.len() / part).copied().fold(0.0, f64::max);
    let highest = [8, 4, 2, 1].map(highest);
    let doubles = |pair: &[f64]| matches!(pair, [before, after] if *before > 0.0 && *after >= before * 1.4);
    maxima(series).last().is_some_and(|last| *last >= warmup)
        && series.get(warmup..).is_some_and(<[f64]>::is_sorted)
        && highest.windows(2).all(doubles)
}

/// How often a series rose to a new maximum by two fifths or more.
fn doublings(series: &[f64]) -> usize {
    let mut highest = series.first().copied().unwrap_or(0.0);
    let mut times = 0;
    for value in series.iter().copied() {
        times += usize::from(highest > 0.0 && value >= highest * 1.4);
        highest = highest.max(value);
    }
    times
}

/// Whether a series rises by the same amount with nearly each of many runs after the warm-up. A series that rises for
/// another reason than the runs does not keep step with them.
pub fn keeps_step(series: &[f64], warmup: usize) -> bool {
    let tail = series.get(warmup..).unwrap_or_default();
    let mut steps: Vec<f64> = tail.iter().skip(1).zip(tail).map(|(now, before)| now - before).collect();
    steps.sort_by(f64::total_cmp);
    let usual = steps.get(steps.len() / 2).copied().unwrap_or(0.0);
    let equal = steps.iter().filter(|step| **step == usual).count();
    steps.len() >= LEAST_STEPS && usual > 0.0 && equal * 10 >= steps.len() * 9
}

/// The trend after the warm-up.
///
/// A series grows if it reaches new maxima in at least three runs, one of them in the last third, if the runs since
/// the last maximum are at most four times as many as ever lay between two maxima, and if the series
/// * either never falls, or reaches new maxima in seven of ten runs and never falls by more than a tenth of its total
///   rise,
/// * or has at least 25 runs, and the middle half of each fifth of them lies above that of the fifth before.
///
/// So a cache that fills up does not grow, and neither does noise, even if each run's size depends on the runs before.
/// A test of the slope alone would report a temporarily long queue as a leak.
pub fn trend(series: &[f64], warmup: usize) -> Trend {
    let maxima = maxima(series);
    let Some(last) = maxima.last().copied() else { return Trend::Steady };
    let late = late_maxima(series, warmup);
    if late == 0 {
        return Trend::Settled(last);
    }
    let tail = series.get(warmup..).unwrap_or_default();
    let longest = maxima.windows(2).filter_map(|pair| Some(pair.last()? - pair.first()?)).max().unwrap_or(last);
    let goes_on = last >= warmup + 2 * tail.len() / 3 && series.len() - 1 - last <= 4 * longest;
    let often = late * 10 >= tail.len() * 7;
    if goes_on && late >= MAXIMA && (tail.is_sorted() || often && hardly_falls(tail) || climbs(tail)) {
        let (slope, give_or_take) = slope(tail);
        let give_or_take = if give_or_take.is_finite() { give_or_take } else { 0.0 };
        return Trend::Growing { slope, give_or_take };
    }
    if goes_on { Trend::Unsettled } else { Trend::Settled(last) }
}

/// Whether the deepest fall is at most a tenth of the total rise.
fn hardly_falls(series: &[f64]) -> bool {
    let (mut highest, mut deepest) = (f64::NEG_INFINITY, 0.0f64);
    for value in series.iter().copied() {
        highest = highest.max(value);
        deepest = deepest.max(highest - value);
    }
    let rise = series.first().zip(series.last()).map_or(0.0, |(first, last)| last - first);
    rise > 0.0 && deepest * 10.0 <= rise
}

/// Whether the interquartile range of each part of a long series lies above that of the part before.
fn climbs(series: &[f64]) -> bool {
    let length = series.len() / PARTS;
    if length < LEAST_PART {
        return false;
    }
    let quartiles = |part: &[f64]| {
        let mut sorted = part.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.get(length / 4).copied().zip(sorted.get(length * 3 / 4).copied())
    };
    let parts: Vec<_> = series.rchunks(length).take(PARTS).filter_map(quartiles).collect();
    // `rchunks` yields the newest part first.
    parts.windows(2).all(|pair| matches!(pair, [(lower, _), (_, upper)] if lower > upper))
}

/// The runs that reached a new maximum, without the first run.
fn maxima(series: &[f64]) -> Vec<usize> {
    let mut highest = series.first().copied().unwrap_or(0.0);
    let mut maxima = Vec::new();
    for (at, value) in series.iter().copied().enumerate() {
        if value > highest {
            maxima.push(at);
            highest = value;
        }
    }
    maxima
}

/// The least-squares slope, with half the width of its confidence interval.
fn slope(series: &[f64]) -> (f64, f64) {
    let n = series.len() as f64;
    let mean_x = (n - 1.0) / 2.0;
    let mean_y = series.iter().sum::<f64>() / n.max(1.0);
    let points = || series.iter().enumerate().map(|(x, y)| (x as f64 - mean_x, y - mean_y));
    let spread: f64 = points().map(|(x, _)| x * x).sum();
    if series.len() < 3 || spread == 0.0 {
        return (0.0, f64::INFINITY);
    }
    let slope = points().map(|(x, y)| x * y).sum::<f64>() / spread;
    let residual: f64 = points().map(|(x, y)| (y - slope * x).powi(2)).sum();
    let freedom = series.len() - 2;
    (slope, student(freedom) * (residual / freedom as f64 / spread).sqrt())
}

/// Quantiles of Student's t-distribution for a two-sided confidence of 99.9 %, by degrees of freedom.
fn student(freedom: usize) -> f64 {
    const T: [f64; 10] = [636.62, 31.60, 12.92, 8.610, 6.869, 5.959, 5.408, 5.041, 4.781, 4.587];
    match freedom {
        0 => f64::INFINITY,
        1..=10 => T.get(freedom - 1).copied().unwrap_or(f64::INFINITY),
        11..=15 => 4.437,
        16..=30 => 4.015,
        _ => 3.646,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(series: impl IntoIterator<Item = u64>, warmup: usize) -> Trend {
        trend(&series.into_iter().map(|n| n as f64).collect::<Vec<_>>(), warmup)
    }

    #[test]
    fn what_grows_with_each_run_grows_and_the_slope_is_right() {
        assert_eq!(of((0..20).map(|n| 7 + n * 100), 10), Trend::Growing { slope: 100.0, give_or_take: 0.0 });
        assert!(matches!(of([0, 5, 10, 15, 20, 25, 30, 35], 4), Trend::Growing { .. }));
        let every_third = of((0..20).map(|n| n / 3 * 64), 10);
        let Trend::Growing { slope, give_or_take } = every_third else { panic!("{every_third:?}") };
        assert!(slope - give_or_take < 64.0 / 3.0 && 64.0 / 3.0 < slope + give_or_take, "{every_third:?}");
    }

    #[test]
    fn what_stays_or_settles_does_not() {
        assert_eq!(of([5; 20], 10), Trend::Steady);
        assert_eq!(of((0..20).map(|n| 9 - n % 3), 10), Trend::Steady);
        assert_eq!(of((0..20).map(|n: u64| n.min(6) * 50), 10), Trend::Settled(6));
        assert_eq!(of((0..20).map(|n: u64| n.min(15)), 10), Trend::Settled(15));
        assert_eq!(of((0..20).map(|n| u64::from(n >= 18)), 10), Trend::Unsettled);
        assert_eq!(of((0..256).map(|n: u64| n.min(240)), 128), Trend::Settled(240));
        assert!(matches!(of((0..256).map(|n: u64| n / 30), 128), Trend::Growing { .. }));
        assert_eq!(of([], 0), Trend::Steady);
    }

    /// The capacity that a container takes for this many elements after each run.
    fn room(lengths: impl Iterator<Item = u64>) -> Vec<f64> {
        lengths.map(|length| length.next_power_of_two().max(4) as f64).collect()
    }

    #[test]
    fn a_container_that_is_filled_on_and_on_doubles_and_one_that_is_full_does_not() {
        for a_run in [1, 2, 3, 7] {
            let grows = room((1..=256).map(|run| run * a_run));
            assert!(doubles(&grows, 2), "{a_run} a run");
            // The series stays unsettled until the next doubling.
            (12..250).for_each(|runs| assert!(is_unsettled(&grows[..runs], 2), "{a_run} a run, {runs} runs"));
            let full = room((1..=256).map(|run| (run * a_run).min(60)));
            assert!(!doubles(&full, 2) && !is_unsettled(&full, 2), "{a_run} a run");
        }
        // For any number of runs, the last doubling is in the second half, or there has been time for the next.
        for (runs, a_run) in
            [20, 50, 100, 256, 300, 1000, 3000].into_iter().flat_map(|runs| [1, 3, 4096].map(|n| (runs, n)))
        {
            let grows = room((1..=runs).map(|run| run * a_run));
            assert!(doubles(&grows, grows.len() / 2), "{a_run} a run, {runs} runs");
            let full = room((1..=runs).map(|run| (run * a_run).min(runs * a_run / 5)));
            assert!(
                !doubles(&full, full.len() / 2) && !is_unsettled(&full, full.len() / 2),
                "{a_run} a run, {runs} runs"
            );
        }
        // Several containers that are filled in turn.
        for number in [2, 3, 5, 10] {
            let rooms = |most: u64| -> Vec<f64> {
                let one = |run: u64, of: u64| room(std::iter::once((run + of).div_ceil(number).min(most)))[0];
                (1..=1000).map(|run| (0..number).map(|of| one(run, of)).sum()).collect()
            };
            assert!(doubles(&rooms(u64::MAX), 500), "{number} in turn");
            assert!(!doubles(&rooms(400 / number), 500), "{number} in turn");
        }
        let comes_and_goes: Vec<f64> = (0..256).map(|run| f64::from(1u32 << (run % 20))).collect();
        assert!(!doubles(&comes_and_goes, 2));
    }

    #[test]
    fn what_is_there_for_a_moment_does_not_end_higher_and_what_grows_seldom_is_not_frequent() {
        let rises: Vec<f64> = (0..100).map(f64::from).collect();
        assert!(ends_higher(&rises) && is_frequent(&rises, 50));
        let falls: Vec<f64> = rises.iter().copied().chain([0.0]).collect();
        assert!(!ends_higher(&falls));
        let seldom: Vec<f64> = (0..256).map(|run| f64::from(run / 31 * 500)).collect();
        assert!(!is_frequent(&seldom, 128) && (12.0..20.0).contains(&rise(&seldom, 128)));
    }

    #[test]
    fn what_rises_by_the_same_with_nearly_each_run_keeps_step_and_what_rises_otherwise_does_not() {
        let steps = |step: fn(u64) -> u64| {
            (0..40)
                .scan(0, move |sum, run| {
                    *sum += step(run);
                    Some(*sum as f64)
                })
                .collect::<Vec<_>>()
        };
        assert!(keeps_step(&steps(|_| 8), 20) && keeps_step(&steps(|run| if run == 30 { 16 } else { 8 }), 20));
        assert!(!keeps_step(&steps(|_| 8), 24), "too few");
        for step in [|_| 0, |run| run % 2, |run| 8 + run % 3, |run| run] {
            assert!(!keeps_step(&steps(step), 10));
        }
    }

    /// A random generator that is good enough for noise.
    fn noise(seed: u64) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(seed * 2 + 1), |n| Some(n.wrapping_mul(6364136223846793005).wrapping_add(1)))
            .map(|n| n >> 54)
            .skip(3)
    }

    /// Sizes of a program without a leak, computed from noise.
    type Clean = fn(&[u64]) -> Vec<u64>;

    /// A queue that grows and shrinks between bounds.
    fn queue(noise: &[u64]) -> Vec<u64> {
        let step = |length: &mut u64, noise: &u64| {
            *length = (*length + noise % 3).saturating_sub(1).min(20);
            Some(*length)
        };
        noise.iter().scan(10, step).collect()
    }

    /// The sum of the newest `N` random sizes.
    fn newest<const N: usize>(noise: &[u64]) -> Vec<u64> {
        (1..=noise.len()).map(|end| noise[end.saturating_sub(N)..end].iter().sum()).collect()
    }

    #[test]
    fn what_varies_hardly_ever_grows() {
        let clean: [(&str, Clean); 4] = [
            ("noise", |noise| noise.to_vec()),
            ("the newest four", newest::<4>),
            ("the newest eight", newest::<8>),
            ("a queue", queue),
        ];
        for (name, program) in clean {
            for runs in [20, 60, 100] {
                let growing = |seed| {
                    matches!(of(program(&noise(seed).take(runs).collect::<Vec<_>>()), runs / 2), Trend::Growing { .. })
                };
                let alarms = (0..20_000).filter(|seed| growing(*seed)).count();
                println!("{name}, {runs} runs: {alarms} alarms of 20,000");
                // Twenty runs are few if each run depends on the runs before.
                let granted = if runs == 20 { 400 } else { 40 };
                assert!(alarms <= granted, "{name}, {runs} runs: {alarms} of 20,000");
            }
        }
    }

    #[test]
    fn leaks_are_seen_through_noise() {
        // Bytes leaked with each run (with noise up to 1,023), runs, and how many of a thousand leaks are found at
        // least.
        for (leak, runs, least) in [(1000, 20, 950), (500, 60, 950), (200, 100, 950), (500, 20, 200)] {
            let series =
                |seed| noise(seed).take(runs).zip(0..).map(|(noise, n)| noise + n * leak).collect::<Vec<u64>>();
            let found = (0..1000).filter(|seed| matches!(of(series(*seed), runs / 2), Trend::Growing { .. })).count();
            println!("{leak} a run, {runs} runs: {found} of 1,000");
            assert!(found >= least, "{leak} a run, {runs} runs: {found} of 1,000");
        }
        // If each run leaks something, the leak is always found.
        let varying = |seed| {
            noise(seed)
                .take(20)
                .scan(0, |sum, n| {
                    *sum += 500 + n;
                    Some(*sum)
                })
                .collect::<Vec<u64>>()
        };
        assert!((0..1000).all(|seed| matches!(of(varying(seed), 10), Trend::Growing { .. })));
    }
}
