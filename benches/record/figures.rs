//! Statistics over the rounds of all cases, as a table and as JSON.

use crate::case::{Case, Round};

pub(crate) struct Row {
    pub(crate) case: Case,
    pub(crate) rounds: Vec<Round>,
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn minimum(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

impl Row {
    fn all(&self, of: fn(&Round) -> f64) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(of)
    }

    pub(crate) fn least(&self) -> f64 {
        minimum(self.all(|round| round.mean))
    }

    pub(crate) fn mean(&self) -> f64 {
        median(self.all(|round| round.mean))
    }

    pub(crate) fn p50(&self) -> f64 {
        median(self.all(|round| round.p50))
    }

    pub(crate) fn p99(&self) -> f64 {
        median(self.all(|round| round.p99))
    }

    /// Median over the rounds of this case's p50 divided by the other's.
    pub(crate) fn times(&self, other: &Self) -> f64 {
        median(self.rounds.iter().zip(&other.rounds).map(|(this, other)| this.p50 / other.p50))
    }

    /// Median over the rounds of this case's p50 minus the other's.
    pub(crate) fn beyond(&self, other: &Self) -> f64 {
        median(self.rounds.iter().zip(&other.rounds).map(|(this, other)| this.p50 - other.p50))
    }

    /// Median over the rounds of what this case adds to `alone`, divided by what the other adds.
    pub(crate) fn adds_times(&self, other: &Self, alone: &Self) -> f64 {
        let all = self.rounds.iter().zip(&other.rounds).zip(&alone.rounds);
        median(all.map(|((this, other), alone)| (this.p50 - alone.p50) / (other.p50 - alone.p50)))
    }
}

pub(crate) fn print(rows: &[Row]) {
    let titles = ["frames", "threads", "live", "minimum", "median", "p50", "p99"];
    print!("{:<32}", "ns per alloc+free of 4 KiB");
    titles.iter().for_each(|title| print!("{title:>10}"));
    println!();
    for row in rows {
        let Case { name, frames, threads, live, .. } = row.case;
        print!("{name:<32}{frames:>10}{threads:>10}{live:>10}");
        println!("{:>10.1}{:>10.1}{:>10.1}{:>10.1}", row.least(), row.mean(), row.p50(), row.p99());
    }
}

pub(crate) fn json(rows: &[Row]) -> String {
    let row = |row: &Row| {
        let Case { name, frames, wished, threads, live, .. } = row.case;
        format!(
            "{{\"name\": \"{name}\", \"depth\": {wished}, \"frames\": {frames}, \"threads\": {threads}, \
             \"live\": {live}, \"min_ns\": {:.1}, \"median_ns\": {:.1}, \"p50_ns\": {:.1}, \"p99_ns\": {:.1}}}",
            row.least(),
            row.mean(),
            row.p50(),
            row.p99()
        )
    };
    rows.iter().map(row).collect::<Vec<_>>().join(",\n    ")
}
