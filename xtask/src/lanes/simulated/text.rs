//! What programs print: lines that must be there, and what of two runs must be the same.

use crate::checks::{Checks, last_lines};

/// Checks that a line is as `what` says.
pub(super) fn line(checks: &mut Checks, name: &str, text: &str, what: &str, is: impl Fn(&str) -> bool) {
    match text.lines().find(|line| is(line)) {
        Some(line) => checks.ok(&format!("{name}: {}", line.trim())),
        None => checks.fail(&format!("{name}: no line {what}:\n{}", last_lines(text))),
    }
}

/// Checks that a line has a number in that range just before the words.
pub(super) fn number(checks: &mut Checks, name: &str, text: &str, range: std::ops::RangeInclusive<u64>, words: &str) {
    let what = format!("with a number in {range:?} before {words:?}");
    line(checks, name, text, &what, |line| before(line, words).is_some_and(|found| range.contains(&found)));
}

/// The number that stands in the line just before the words.
pub(super) fn before(line: &str, words: &str) -> Option<u64> {
    let (before, _) = line.split_once(words)?;
    let digits = before.len() - before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    before[before.len() - digits..].parse().ok()
}

/// Words without the spaces between them.
pub(super) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Without what memtrace says at a program's end and of memory that ran out, and without what differs from run to run:
/// times, and tables that are sorted by them.
pub(super) fn timeless(text: &str) -> Vec<String> {
    let mut kept = Vec::new();
    let mut until: Option<fn(&str) -> bool> = None;
    for line in text.lines() {
        if let Some(is_last) = until {
            until = (!is_last(line)).then_some(is_last);
        } else if let Some(is_last) = section(line) {
            until = Some(is_last);
        } else if !["memtrace: wrote ", "live: ", "Other memory "].iter().any(|start| line.starts_with(start)) {
            kept.push(without_times(line));
        }
    }
    kept
}

/// How a section ends that begins with this line and is left out.
fn section(line: &str) -> Option<fn(&str) -> bool> {
    if line.starts_with("memtrace: ") && line.ends_with(" is out of memory") {
        return Some(|line| line.contains("(no scope)"));
    }
    if line.starts_with("Time in the driver") {
        return Some(str::is_empty);
    }
    None
}

fn without_times(line: &str) -> String {
    let (mut kept, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(is_figure) {
        let after = rest[at..].trim_start_matches(is_figure);
        kept.push_str(&rest[..at]);
        rest = match after_unit(after) {
            Some(after) => {
                kept.push_str("TIME");
                after
            }
            None => {
                kept.push_str(&rest[at..rest.len() - after.len()]);
                after
            }
        };
    }
    kept + rest
}

fn is_figure(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

/// What follows a unit of time with which the text begins.
fn after_unit(text: &str) -> Option<&str> {
    let text = text.strip_prefix(' ').unwrap_or(text);
    let after = ["ns", "µs", "ms", "s"].iter().find_map(|unit| text.strip_prefix(unit))?;
    (!after.starts_with(|c: char| c.is_alphanumeric() || c == '_')).then_some(after)
}

/// The first line in which two texts differ.
pub(super) fn difference(ours: &[String], alone: &[String]) -> Option<String> {
    let line = |lines: &[String], at| lines.get(at).cloned().unwrap_or_else(|| "nothing".to_owned());
    let at = (0..ours.len().max(alone.len())).find(|&at| ours.get(at) != alone.get(at))?;
    Some(format!("line {}:\n      {}\n      not, as alone:\n      {}", at + 1, line(ours, at), line(alone, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_taken_out_and_nothing_else() {
        let line = "took 1.5 ms, 20ns, 3µs and 7 s; 12 steps of 4.0 MiB in 2 sections, 5.0 s_ and x9 ms";
        let timeless = "took TIME, TIME, TIME and TIME; 12 steps of 4.0 MiB in 2 sections, 5.0 s_ and xTIME";
        assert_eq!(without_times(line), timeless);
    }

    #[test]
    fn what_memtrace_says_is_left_out() {
        let text = "one\nmemtrace: wrote a\nlive: 5\nOther memory 3\nmemtrace: cuda:0 is out of memory\nsome\n\
                    4 (no scope)\ntwo\nTime in the driver: 1\n5 ms\n\nthree\nmemtrace: other";
        assert_eq!(timeless(text), ["one", "two", "three", "memtrace: other"]);
    }

    #[test]
    fn the_first_difference_is_shown() {
        let texts = [["a", "b"], ["a", "c"]].map(|lines| lines.map(str::to_owned));
        assert_eq!(difference(&texts[0], &texts[0]), None);
        assert_eq!(difference(&texts[0], &texts[1]).unwrap(), "line 2:\n      b\n      not, as alone:\n      c");
        assert!(difference(&texts[0], &texts[0][..1]).unwrap().ends_with("nothing"));
    }

    #[test]
    fn a_number_stands_just_before_its_words() {
        assert_eq!(before("test result: 65 passed; 0 failed", " passed"), Some(65));
        assert_eq!(before("none passed", " passed"), None);
        assert_eq!(before("65 passed", " failed"), None);
    }
}
