//! Texts in CSV cells (RFC 4180) that spreadsheets do not execute.
//!
//! A spreadsheet evaluates a cell that begins with `=`, `+`, `-` or `@` as a formula, quoted or not. With an
//! apostrophe before this character, the cell is a text; numbers get none and stay numbers. The rule for readers of
//! the data: if a text begins with apostrophes, and one of these characters follows (possibly after spaces), remove
//! the first apostrophe. A text that already has this form gets another apostrophe, so nothing is lost.

use std::borrow::Cow;

/// A text as a cell, in quotes if it needs them.
pub fn text(text: &str) -> Cow<'_, str> {
    let cell = if is_computed(text) { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) };
    if cell.contains(['"', ',', '\n', '\r']) { Cow::Owned(format!("\"{}\"", cell.replace('"', "\"\""))) } else { cell }
}

/// Would a spreadsheet evaluate the text? Spreadsheets also accept the full-width forms of the signs.
fn is_computed(text: &str) -> bool {
    let begin = text.trim_start_matches(|c: char| c == '\'' || c.is_whitespace() || c.is_control());
    let is_number = text.parse::<f64>().is_ok_and(f64::is_finite);
    begin.starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']) && !is_number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_text_and_the_text_comes_back() {
        for (cell, shown) in [
            ("src/model.rs:7", "src/model.rs:7"),
            ("=1+1", "'=1+1"),
            ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1,2", "\"'\t=1,2\""),
            ("\r+x", "\"'\r+x\""),
            ("-x \"y\"", "\"'-x \"\"y\"\"\""),
            ("'=1", "''=1"),
            ("-1.5", "-1.5"),
            ("-inf", "'-inf"),
            ("it's =1", "it's =1"),
            ("", ""),
        ] {
            assert_eq!(text(cell), shown);
        }
    }
}
