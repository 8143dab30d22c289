//! A formula through the runs, as a hint. No verdict follows from it.

use memtrace_core::Bytes;

/// A formula for the peak, `a + b·n` or `a + b·n + c·n²`, fitted to all runs but one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Law {
    /// The coefficients `a`, `b` and `c`, for bytes. In a linear formula, `c` is 0.
    coefficients: [f64; 3],
    /// The run that was left out of the fit.
    held_out: u64,
    /// The formula's error at that run, as a share of the peak.
    off: f64,
}

/// The largest error with which a formula is shown as a hint.
const LEAST_OFF: f64 = 0.02;

impl Law {
    /// The simplest formula for these sizes and peaks. `None` if there are fewer than four points, or if no formula is
    /// close to the run that was left out.
    pub(super) fn through(points: &[(u64, u64)]) -> Option<Self> {
        let at = points.len().checked_sub(2).filter(|_| points.len() >= 4)?;
        let (held_out, peak) = *points.get(at)?;
        let others: Vec<(u64, u64)> = points.iter().copied().filter(|(size, _)| *size != held_out).collect();
        // A formula with as many coefficients as points fits any points, so its fit shows nothing.
        let degrees = [1, 2].into_iter().filter(|degree| others.len() > degree + 1);
        let law = |degree| {
            let coefficients = least_squares(&others, degree)?;
            let off = (value(coefficients, held_out) - peak as f64).abs() / (peak as f64).max(1.0);
            Some(Self { coefficients, held_out, off })
        };
        degrees.filter_map(law).find(|law| law.off <= LEAST_OFF)
    }

    /// The hint, in one line.
    pub(super) fn hint(&self, name: &str) -> String {
        let [a, b, c] = self.coefficients;
        let term = |coefficient: f64, times: &str| {
            let sign = if coefficient < 0.0 { '-' } else { '+' };
            format!(" {sign} {}{times}", Bytes(coefficient.abs() as u64))
        };
        let square = if c == 0.0 { String::new() } else { term(c, &format!(" x {name}²")) };
        format!(
            "Hint: live at the peak is about{}{}{square}; at {name}={}, which was left out of the fit, it is {:.1} % off",
            term(a, "").trim_start_matches(" +"),
            term(b, &format!(" x {name}")),
            self.held_out,
            100.0 * self.off
        )
    }
}

fn value([a, b, c]: [f64; 3], size: u64) -> f64 {
    let n = size as f64;
    a + b * n + c * n * n
}

/// The coefficients of this degree with the smallest sum of squares; `None` if there are too few sizes.
fn least_squares(points: &[(u64, u64)], degree: usize) -> Option<[f64; 3]> {
    // Sizes are scaled to at most 1, so that their powers are of similar magnitude.
    let scale = points.iter().map(|(size, _)| *size).max()? as f64;
    let count = degree + 1;
    let mut rows = vec![vec![0.0; count + 1]; count];
    for (size, peak) in points {
        let powers: Vec<f64> = (0..count).map(|power| (*size as f64 / scale).powi(power as i32)).collect();
        for (row, left) in rows.iter_mut().zip(&powers) {
            row.iter_mut().zip(&powers).for_each(|(cell, right)| *cell += left * right);
            row[count] += left * *peak as f64;
        }
    }
    let solved = solve(rows)?;
    let mut coefficients = [0.0; 3];
    for (power, coefficient) in solved.into_iter().enumerate() {
        coefficients[power] = coefficient / scale.powi(power as i32);
    }
    Some(coefficients)
}

/// Solves linear equations by Gaussian elimination, with the largest pivot.
fn solve(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let count = rows.len();
    for column in 0..count {
        let pivot = (column..count).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
        rows.swap(column, pivot);
        let own = rows[column].clone();
        if own[column].abs() < 1e-9 {
            return None;
        }
        for (_, row) in rows.iter_mut().enumerate().filter(|(at, _)| *at != column) {
            let times = row[column] / own[column];
            row.iter_mut().zip(&own).for_each(|(cell, own)| *cell -= times * own);
        }
    }
    Some((0..count).map(|at| rows[at][count] / rows[at][at]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(sizes: &[u64], peak: impl Fn(u64) -> u64) -> Option<Law> {
        Law::through(&sizes.iter().map(|size| (*size, peak(*size))).collect::<Vec<_>>())
    }

    #[test]
    fn the_simplest_law_that_holds_where_it_was_not_made_is_the_hint() {
        let linear = law(&[1, 2, 4, 8], |n| (10 << 20) + n * (3 << 20)).unwrap();
        assert_eq!(
            linear.hint("batch"),
            "Hint: live at the peak is about 10.00 MiB + 3.000 MiB x batch; at batch=4, which was left out of the fit, it is 0.0 % off"
        );
        let square = law(&[512, 1024, 2048, 4096, 8192], |n| (1 << 30) + 1000 * n + 64 * n * n).unwrap();
        assert!(
            square.hint("tokens").contains("1.000 GiB + 1000 B x tokens + 64 B x tokens²"),
            "{}",
            square.hint("tokens")
        );
    }

    #[test]
    fn few_runs_and_steps_have_no_law() {
        assert_eq!(law(&[1, 2, 4], |n| n), None);
        assert_eq!(law(&[1, 2, 4, 8, 16], |n| if n > 7 { 900 } else { 1_000_000 }), None);
        assert_eq!(law(&[1, 2, 4, 8], |n| n * n * 1000), None, "with four a square is not held against anything");
    }
}
