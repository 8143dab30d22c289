//! Text table with aligned columns for terminals.

use crate::visible;

/// The part that is cut from a label that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// First the function in parentheses, then the beginning, because a path's file and line are at its end.
    Start,
    /// The end, because a function's name is at the beginning.
    End,
}

/// Rows of cells. All columns but the last are right-aligned; the last is cut to fit.
pub struct TextTable {
    cut: Cut,
    /// The first row is the header.
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table without rows.
    pub fn new(header: &[&'static str], cut: Cut) -> Self {
        Self { cut, rows: vec![header.iter().map(|name| (*name).to_owned()).collect()] }
    }

    /// Adds a row. Each cell is one line.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| visible::line(cell).into_owned()).collect());
    }

    /// Lines of at most `width` characters; the first is the header.
    pub fn lines(&self, width: usize) -> Vec<String> {
        let columns = self.rows.first().map_or(0, |header| header.len().saturating_sub(1));
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let width_of = |column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width_of).collect();
        let used: usize = widths.iter().map(|width| width + 2).sum();
        let last = width.saturating_sub(used).max(20);
        self.rows.iter().map(|cells| line(cells, &widths, last, self.cut)).collect()
    }
}

fn line(cells: &[String], widths: &[usize], last: usize, cut: Cut) -> String {
    let mut out = String::new();
    for (cell, &width) in cells.iter().zip(widths) {
        out.push_str(&format!("{cell:>width$}  "));
    }
    if let Some(text) = cells.get(widths.len()) {
        out.push_str(&shortened(text, last, cut));
    }
    out.trim_end().to_owned()
}

fn shortened(text: &str, width: usize, cut: Cut) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    match cut {
        Cut::Start => {
            let (path, function) = text.split_once(" (").unwrap_or((text, ""));
            let note = function.rsplit_once(") ").map_or(String::new(), |(_, note)| format!(" {note}"));
            end_of(&format!("{path}{note}"), width)
        }
        Cut::End => text.chars().take(width - 1).chain(['…']).collect(),
    }
}

fn end_of(text: &str, width: usize) -> String {
    match text.chars().count() {
        length if length <= width => text.to_owned(),
        length => std::iter::once('…').chain(text.chars().skip(length + 1 - width)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_long_labels_are_cut_to_the_width() {
        for (cut, shown) in
            [(Cut::Start, "…that/does/not/fit/model.rs:42"), (Cut::End, "src/a/very/long/path/that/doe…")]
        {
            let mut table = TextTable::new(&["Mem", "Location"], cut);
            table.row(vec!["1.000 MiB".into(), "src/a/very/long/path/that/does/not/fit/model.rs:42 (forward)".into()]);
            table.row(vec!["5 B".into(), "x.rs:1".into()]);
            let lines = table.lines(41);
            assert_eq!(lines, ["      Mem  Location", &format!("1.000 MiB  {shown}"), "      5 B  x.rs:1"]);
        }
    }

    #[test]
    fn a_label_of_any_length_is_cut() {
        let text = format!("a.rs:1{} [no user frame]", " (f)".repeat(100_000));
        assert_eq!(shortened(&text, 30, Cut::Start), "a.rs:1 [no user frame]");
        assert_eq!(
            shortened("src/a.rs:1 (f::<(u8, u8)>) [no user frame]", 26, Cut::Start),
            "src/a.rs:1 [no user frame]"
        );
    }
}
