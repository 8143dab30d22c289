//! Markdown renderer of a report, for pull requests and CI summaries.

use std::fmt::Write as _;

use super::text::cell_text;
use crate::report::{Report, Section};

/// The report as Markdown: the answer, then each section as a table.
pub fn markdown(report: &Report) -> String {
    let mut text = format!("### {}\n\n", escaped(&report.title));
    for line in report.answer.iter().chain(&report.notes) {
        let _ = writeln!(text, "{}  ", escaped(line));
    }
    report.sections.iter().for_each(|section| table(&mut text, section));
    text
}

fn table(text: &mut String, section: &Section) {
    let _ = writeln!(text, "\n**{}**\n", escaped(&section.title));
    section.about.iter().for_each(|line| _ = writeln!(text, "{}  ", escaped(line)));
    if section.rows.is_empty() {
        return;
    }
    let titles = &section.columns;
    let rule = vec!["---:"; titles.len().saturating_sub(1)];
    let _ = writeln!(text, "| {} |\n| {} | :--- |", titles.join(" | "), rule.join(" | "));
    for row in &section.rows {
        let cells: Vec<String> = row.iter().map(|cell| escaped(&cell_text(cell, ""))).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
}

/// Escapes Markdown's special characters, which names of functions contain.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '<' | '>' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Cell;

    #[test]
    fn a_table_has_a_rule_and_names_are_escaped() {
        let section = Section {
            title: "Change, by line".into(),
            columns: vec!["Change", "Location"],
            rows: vec![vec![Cell::Change(1024), Cell::Text("a|b::<T>".into())]],
            ..Section::default()
        };
        let report = Report { title: "memtrace".into(), sections: vec![section], ..Report::default() };
        let expected = "### memtrace\n\n\n**Change, by line**\n\n| Change | Location |\n| ---: | :--- |\n| +1.000 KiB | a\\|b::\\<T\\> |\n";
        assert_eq!(markdown(&report), expected);
    }
}
