//! Does a series of numbers go on growing?

/// What became of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Trend {
    /// It stays, or goes up and down.
    Steady,
    /// It grew at first and then no more: the last growth was in this run, counted from 0.
    Settled(usize),
    /// It grew lately, but too seldom to tell.
    Unsettled,
    /// It grows by so much with each run, give or take.
    Growing { slope: f64, give_or_take: f64 },
}

/// How often a series has to reach a new height after the warm-up.
const HEIGHTS: usize = 3;

/// The trend of what comes after the warm-up, whose runs count as what was there before.
///
/// Growing is what reaches new heights at least three times, also in the last third, and whose fitted slope is
/// above 0 with a confidence of 99.9 %. So a cache that fills up is none, nor is what varies from run to run.
pub(super) fn trend(series: &[f64], warmup: usize) -> Trend {
    let heights = heights(series);
    let Some(last) = heights.last().copied() else { return Trend::Steady };
    let late: Vec<usize> = heights.into_iter().filter(|at| *at >= warmup).collect();
    if late.is_empty() {
        return Trend::Settled(last);
    }
    let tail = series.get(warmup..).unwrap_or_default();
    let goes_on = last >= warmup + 2 * tail.len() / 3;
    let (slope, give_or_take) = slope(tail);
    if goes_on && late.len() >= HEIGHTS && slope - give_or_take > 0.0 {
        return Trend::Growing { slope, give_or_take };
    }
    if goes_on { Trend::Unsettled } else { Trend::Settled(last) }
}

/// The runs after which there was more than ever before; the first is none.
fn heights(series: &[f64]) -> Vec<usize> {
    let mut highest = series.first().copied().unwrap_or(0.0);
    let mut heights = Vec::new();
    for (at, value) in series.iter().copied().enumerate() {
        if value > highest {
            heights.push(at);
            highest = value;
        }
    }
    heights
}

/// The least-squares slope with half the width of its confidence interval.
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

/// Student's t for a two-sided confidence of 99.9 %, by degrees of freedom.
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
        assert!(matches!(of([0, 5, 10, 15, 20, 25], 3), Trend::Growing { .. }));
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
        assert_eq!(of([], 0), Trend::Steady);
    }

    /// A generator good enough for noise.
    fn noise(seed: u64) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(seed * 2 + 1), |n| Some(n.wrapping_mul(6364136223846793005).wrapping_add(1)))
            .map(|n| n >> 54)
            .skip(3)
    }

    #[test]
    fn noise_hardly_ever_grows_and_growth_is_seen_through_noise() {
        let growing = |series: Vec<u64>| matches!(of(series, 10), Trend::Growing { .. });
        let false_alarms = (0..20_000).filter(|seed| growing(noise(*seed).take(20).collect())).count();
        assert!(false_alarms <= 20, "{false_alarms} of 20,000");
        let with_leak = |seed| noise(seed).take(20).zip(0..).map(|(noise, n)| noise + n * 500).collect();
        let found = (0..1000).filter(|seed| growing(with_leak(*seed))).count();
        assert!(found >= 950, "{found} of 1,000");
    }
}
