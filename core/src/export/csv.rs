//! Texts in CSV cells (RFC 4180), harmless in spreadsheets.
//!
//! A spreadsheet computes a cell that begins with `=`, `+`, `-` or `@`, quoted or not. An apostrophe before it makes it text there;
//! numbers stay numbers. Readers of data take away the first apostrophe of a text that has, behind its apostrophes and spaces,
//! one of these characters: a text that has both by itself gets another, so nothing is lost.

use std::borrow::Cow;

/// A text as a cell, in quotes where it needs them.
pub fn text(text: &str) -> Cow<'_, str> {
    let cell = if is_computed(text) { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) };
    if cell.contains(['"', ',', '\n', '\r']) { Cow::Owned(format!("\"{}\"", cell.replace('"', "\"\""))) } else { cell }
}

/// The signs also in the width of East Asian letters, which spreadsheets take for the same.
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
