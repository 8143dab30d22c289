//! Aligned columns for terminals.

/// Rows of cells; all columns but the last are right-aligned, the last is cut to fit.
pub(super) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Lines of at most `width` characters, the header first.
    pub(super) fn lines(&self, width: usize) -> Vec<String> {
        let header: Vec<String> = self.header.iter().map(|name| (*name).to_owned()).collect();
        let widths = self.widths(&header);
        let used: usize = widths.iter().map(|w| w + 2).sum();
        let last = width.saturating_sub(used).max(20);
        std::iter::once(&header).chain(&self.rows).map(|cells| line(cells, &widths, last)).collect()
    }

    /// Widths of all columns but the last.
    fn widths(&self, header: &[String]) -> Vec<usize> {
        let numbers = header.len().saturating_sub(1);
        let width = |column: usize| {
            let cells = std::iter::once(header).chain(self.rows.iter().map(Vec::as_slice));
            cells.filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..numbers).map(width).collect()
    }
}

fn line(cells: &[String], widths: &[usize], last: usize) -> String {
    let mut out = String::new();
    for (cell, &width) in cells.iter().zip(widths) {
        out.push_str(&format!("{cell:>width$}  "));
    }
    if let Some(text) = cells.get(widths.len()) {
        out.push_str(&cut(text, last));
    }
    out.trim_end().to_owned()
}

/// Keeps the end, where a path has its file and line.
fn cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().skip(length + 1 - width).collect();
    format!("…{kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_long_labels_lose_their_beginning() {
        let mut table = Table::new(&["Mem", "Location"]);
        table.row(vec!["1.000 MiB".into(), "src/a/very/long/path/that/does/not/fit/model.rs:42 (forward)".into()]);
        table.row(vec!["5 B".into(), "x.rs:1".into()]);
        let lines = table.lines(40);
        assert_eq!(lines[0], "      Mem  Location");
        assert_eq!(
            lines[1],
            "1.000 MiB  …does/not/fit/model.rs:42 (forward)"[..].chars().collect::<String>().replace(
                "…does/not/fit/model.rs:42 (forward)",
                &cut("src/a/very/long/path/that/does/not/fit/model.rs:42 (forward)", 29)
            )
        );
        assert!(lines.iter().all(|line| line.chars().count() <= 40), "{lines:?}");
        assert_eq!(lines[2], "      5 B  x.rs:1");
    }
}
