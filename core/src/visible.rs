//! Visible text: defines which characters control a terminal or are invisible, and how they are escaped.
//!
//! Names in a recording come from any program and any file. A recording's data keeps them unchanged. They are escaped
//! where text is output: in reports, errors, messages and SVG. The escapes are those of Rust's literals, `\n` or
//! `\u{202e}`, which readers know and can search for. Backslashes are not escaped, so that paths stay readable. JSON
//! output has the exact names.

use std::borrow::Cow;

/// True for characters that move a cursor, control a terminal, end a line, or reorder or hide text. These are Unicode's
/// categories Cc, Cf, Zl and Zp, its default ignorable characters and its noncharacters. XML forbids some of them and
/// needs none.
pub fn is_obeyed(c: char) -> bool {
    // Default ignorable characters that are letters or marks.
    let is_ignored = matches!(c, '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{e0000}'..='\u{e0fff}');
    let is_format = matches!(c, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}'
        | '\u{8e2}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}');
    let is_no_character = matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe;
    c.is_control() || is_format || is_ignored || is_no_character
}

/// Escapes a text that must stay on one line, such as a name. Line feeds and tabs are escaped, too. The result is never
/// a workflow command of GitHub's runners (`::error::`).
pub fn line(text: &str) -> Cow<'_, str> {
    match text.trim_start().strip_prefix("::") {
        Some(rest) => Cow::Owned(format!("\\u{{3a}}:{}", shown(rest, is_obeyed))),
        None => shown(text, is_obeyed),
    }
}

/// Escapes a text of several lines that memtrace made. Its line feeds and tabs stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    shown(text, |c| is_obeyed(c) && !matches!(c, '\n' | '\t'))
}

/// Escapes JSON so that it is safe to print; its value stays the same. This needs no parser, because non-ASCII
/// characters occur only in JSON's strings.
pub fn json(json: String) -> String {
    let is_escaped = |c| is_obeyed(c) && c >= '\u{7f}';
    if json.is_ascii() && !json.contains('\u{7f}') {
        return json;
    }
    let escape = |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
    json.chars().fold(String::with_capacity(json.len()), |mut out, c| {
        if is_escaped(c) {
            out.push_str(&escape(c))
        } else {
            out.push(c)
        }
        out
    })
}

fn shown(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    // The fast path: most texts are ASCII, and every name of a recording goes through here.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) || !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reader_would_obey_is_visible_and_other_text_stays() {
        let evil = "a\u{1b}[2J\r\n\t\u{9b}31m\u{202e}b\u{2028}\u{e0041}\u{feff}\u{fe0f}\0";
        let shown = "a\\u{1b}[2J\\r\\n\\t\\u{9b}31m\\u{202e}b\\u{2028}\\u{e0041}\\u{feff}\\u{fe0f}\\u{0}";
        assert_eq!(line(evil), shown);
        assert_eq!(line(shown), shown, "an escape is not escaped again");
        assert_eq!(lines("one\n\ttwo\r"), "one\n\ttwo\\r");
        for plain in
            ["src/model.rs:7 (<Net as Módule>::forward)", "C:\\net", "訓練\u{3000}步", "a\u{a0}b", "e\u{301}", "🦀"]
        {
            assert!(matches!(line(plain), Cow::Borrowed(_)), "{plain}");
        }
    }

    /// XML 1.0, section 2.2.
    #[test]
    fn no_visible_character_is_forbidden_in_xml_or_invisible_to_rust() {
        for c in '\0'..=char::MAX {
            let is_xml = matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
            assert!(is_obeyed(c) || is_xml, "{c:?}");
            // Rust's own escapes cover these categories, but also marks, spaces and unassigned characters.
            assert!(is_obeyed(c) || !c.is_control(), "{c:?}");
        }
        let [lowest, highest] = ['\u{200b}', '\u{206f}'];
        let seen: Vec<char> = (lowest..=highest).filter(|c| !is_obeyed(*c) && c.escape_debug().len() > 1).collect();
        assert_eq!(seen, ['\u{202f}', '\u{205f}'], "spaces only");
    }

    #[test]
    fn json_is_safe_to_print_and_parses_to_the_same_value() {
        let every: String = ('\0'..=char::MAX).filter(|c| is_obeyed(*c)).chain("é\"\\🦀".chars()).collect();
        let value = serde_json::json!({ (&*every): [&*every, 1] });
        for text in [value.to_string(), format!("{value:#}")] {
            let safe = json(text);
            assert!(!safe.contains(|c| is_obeyed(c) && c != '\n'));
            assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
        }
    }

    #[test]
    fn a_line_is_no_command_for_a_runner() {
        assert_eq!(line("  ::error file=x::y\n"), "\\u{3a}:error file=x::y\\n");
        assert_eq!(line("a::b ::c"), "a::b ::c");
    }
}
