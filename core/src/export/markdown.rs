//! Markdown renderer of a report, for pull requests and CI summaries.

use std::fmt::Write as _;

use super::text::cell_text;
use crate::report::{Report, Section};
use crate::visible;

/// The report as Markdown: the answer, then each section as a table.
pub fn markdown(report: &Report) -> String {
    let mut text = format!("### {}\n\n", escaped(&report.title));
    for line in report.answer.iter().chain(&report.notes) {
        let _ = writeln!(text, "{}  ", self::line(line));
    }
    report.sections.iter().for_each(|section| table(&mut text, section));
    text
}

fn table(text: &mut String, section: &Section) {
    let _ = writeln!(text, "\n**{}**\n", escaped(&section.title));
    section.about.iter().for_each(|line| _ = writeln!(text, "{}  ", self::line(line)));
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

/// Escapes a text of one line, so that Markdown shows it unchanged. GitHub acts on some words, such as mentions, after
/// it has parsed the Markdown. Such words are shown as code, because nothing else keeps GitHub from acting on them.
#[doc(hidden)]
pub fn escaped(text: &str) -> String {
    let text = visible::line(text);
    let mut out = String::with_capacity(text.len());
    for (at, word) in text.split(' ').enumerate() {
        if at > 0 {
            out.push(' ');
        }
        out.push_str(&if is_acted_upon(word) { code(word) } else { punctuation(word) });
    }
    out
}

/// A text of one line as a code span. A bar ends a table cell even in code, so bars are placed outside of the code.
#[doc(hidden)]
pub fn code(text: &str) -> String {
    let text = visible::line(text);
    let parts = text.split('|').map(|part| {
        let longest = part.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let (fence, space) = ("`".repeat(longest + 1), if longest > 0 { " " } else { "" });
        if part.is_empty() { String::new() } else { format!("{fence}{space}{part}{space}{fence}") }
    });
    parts.collect::<Vec<_>>().join("\\|")
}

fn punctuation(word: &str) -> String {
    let is_special = |c| "|<>*_`[]\\#&~".contains(c);
    word.chars().flat_map(|c| is_special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Escapes a line so that it does not begin a list or a heading.
fn line(text: &str) -> String {
    let mut line = escaped(text);
    let first = line.split(' ').next().unwrap_or_default();
    let is_rule = !first.is_empty() && first.chars().all(|c| "-+=".contains(c));
    let is_number = first.strip_suffix(['.', ')']).is_some_and(|number| number.parse::<u32>().is_ok());
    if is_rule || is_number {
        line.insert(first.len() - 1, '\\');
    }
    line
}

/// Would GitHub act on the word? That is so for a mention, an address, an issue, a commit, a formula, or a name between
/// colons (`:key:` becomes a picture).
fn is_acted_upon(word: &str) -> bool {
    let word = word.to_lowercase();
    let is_issue = ["#", "gh-"].iter().any(|mark| {
        word.match_indices(mark).any(|(at, _)| word[at + mark.len()..].starts_with(|c: char| c.is_ascii_digit()))
    });
    let is_commit = |part: &str| part.len() >= 7 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_picture = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_+-".contains(c));
    let mut between = word.split(':').skip(1).peekable();
    let has_picture = std::iter::from_fn(|| between.next().filter(|_| between.peek().is_some())).any(is_picture);
    let has_commit = word.split(|c: char| !c.is_alphanumeric() && c != '_').any(is_commit);
    word.contains(['@', '$']) || word.contains("://") || word.contains("www.") || is_issue || has_commit || has_picture
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

    #[test]
    fn what_markdown_and_github_act_upon_is_shown_as_it_is() {
        for (text, shown) in [
            ("src/model.rs:7 (Net::forward), 3 MiB (64 %)", "src/model.rs:7 (Net::forward), 3 MiB (64 %)"),
            ("&lt; ~~x~~ <b> [a](b) ![c](d) # e", "\\&lt; \\~\\~x\\~\\~ \\<b\\> \\[a\\](b) !\\[c\\](d) \\# e"),
            ("by @all now", "by `@all` now"),
            ("(see #12) GH-3 x#y", "(see `#12)` `GH-3` x\\#y"),
            ("https://x.y WWW.x.y a@b.c", "`https://x.y` `WWW.x.y` `a@b.c`"),
            ("at 1a2b3c4d, bad", "at `1a2b3c4d,` bad"),
            ("$x$ a::key::b a::b", "`$x$` `a::key::b` a::b"),
            ("@a|@b", "`@a`\\|`@b`"),
            ("@`a``", "``` @`a`` ```"),
            ("@a\\|b", "`@a\\`\\|`b`"),
            ("a\nb\u{202e}", "a\\\\nb\\\\u{202e}"),
        ] {
            assert_eq!(escaped(text), shown);
        }
        assert_eq!(["- a", "1. a", "===", "+1 B"].map(line), ["\\- a", "1\\. a", "==\\=", "+1 B"]);
    }
}
