//! Whether a program fits on GPUs: a line for each card, and the memory that it needs there.

use super::{Cell, Section};
use crate::analysis::{DriftRow, Fit, FitVerdict};
use crate::units::Bytes;

/// The verdict on a card, as one line.
pub fn fit_line(fit: &Fit) -> String {
    let range = |least, most| format!("{} to {}", Bytes(least), Bytes(most));
    let verdict = match fit.verdict() {
        FitVerdict::Fits(least, most) => format!("fits, {} spare", range(least, most)),
        FitVerdict::DoesNotFit(least, most) => format!("does not fit, {} short", range(least, most)),
        FitVerdict::Undecided(spare, short) => match &fit.doubt {
            Some(doubt) => format!("undecided: {doubt}"),
            None => format!("undecided, between {} spare and {} short", Bytes(spare), Bytes(short)),
        },
    };
    let whose = if fit.card.unified { "of the host's memory" } else { "for CUDA" };
    format!("{} ({} {whose}): {verdict}", fit.card.name, Bytes(fit.card.memory))
}

/// What was predicted for a card next to what a recording on it measured, row by row.
pub fn drift_section(fit: &Fit, rows: &[DriftRow]) -> Section {
    let title = format!("Predicted for {} and measured", fit.card.name);
    let mut section = Section::of_columns("drift", title, &["Low", "High", "Measured", "What"]);
    let under = |row: &DriftRow| if row.is_under() { ": UNDER" } else { "" };
    let cells = |row: &DriftRow| {
        let bytes = [row.low, row.high, row.measured].map(Cell::Sum);
        bytes.into_iter().chain([Cell::Text(format!("{}{}", row.what, under(row)))]).collect()
    };
    section.rows = rows.iter().map(cells).collect();
    section
}

/// The memory that is needed on a card, row by row.
pub fn fit_section(fit: &Fit) -> Section {
    let mut section =
        Section::of_columns("fit", format!("On {} ({})", fit.card.name, fit.card.source), &["Low", "High", "What"]);
    if fit.card.unified {
        section.about.push("The GPU's memory is the host's, so what the process itself has counts.".to_owned());
    }
    let row = |low, high, what: &str, known: &str| {
        vec![Cell::Sum(low), Cell::Sum(high), Cell::Text(format!("{what}{known}"))]
    };
    section.rows =
        fit.rows.iter().map(|need| row(need.low, need.high, need.what, &format!(": {}", need.known_by))).collect();
    let (low, high) = fit.needed();
    let of = format!("of {}", Bytes(fit.card.memory));
    section.rows.push(row(low, high, "= needed ", &of));
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Card, NeedRow};

    #[test]
    fn verdicts_are_one_line_and_the_rows_add_up() {
        let need = |low, high| NeedRow { what: "live at the peak", low, high, known_by: "exact".into() };
        let fit = |memory| Fit {
            card: Card::of_memory("24GiB", memory),
            rows: vec![need(1 << 20, 1 << 20), need(0, 1024)],
            roomy_pools: 0,
            doubt: None,
        };
        assert_eq!(fit_line(&fit(2 << 20)), "24GiB (2.000 MiB for CUDA): fits, 1023.0 KiB to 1.000 MiB spare");
        assert_eq!(
            fit_line(&fit(1 << 20)),
            "24GiB (1.000 MiB for CUDA): undecided, between 0 B spare and 1.000 KiB short"
        );
        let on_host = Fit { card: Card::of_host("24GiB", 2 << 20), ..fit(0) };
        assert!(fit_line(&on_host).starts_with("24GiB (2.000 MiB of the host's memory): fits, "));
        assert!(fit_section(&on_host).about[0].contains("the host's") && fit_section(&fit(0)).about.is_empty());
        assert_eq!(fit_line(&fit(0)), "24GiB (0 B for CUDA): does not fit, 1.000 MiB to 1.001 MiB short");
        let section = fit_section(&fit(2 << 20));
        let sums: Vec<_> = section.rows.iter().map(|row| (row[0].clone(), row[1].clone())).collect();
        assert_eq!(sums[2], (Cell::Sum(1 << 20), Cell::Sum((1 << 20) + 1024)));
    }
}
