//! Checks that each print a line and do not stop at the first failure.

use std::fmt::{Debug, Display};
use std::ops::RangeInclusive;

use anyhow::{Result, bail, ensure};

/// Counts the checks that passed and failed. [`end`](Self::end) fails if one failed, or if there was none.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    passed: usize,
    failed: usize,
}

impl Checks {
    pub(crate) fn ok(&mut self, text: &str) {
        println!("ok    {text}");
        self.passed += 1;
    }

    pub(crate) fn fail(&mut self, text: &str) {
        println!("FAIL  {text}");
        self.failed += 1;
    }

    /// Whether there was no check yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.passed + self.failed == 0
    }

    pub(crate) fn that(&mut self, text: &str, holds: bool) {
        if holds { self.ok(text) } else { self.fail(text) }
    }

    pub(crate) fn equal<T: PartialEq + Debug>(&mut self, text: &str, actual: T, expected: T) {
        if actual == expected {
            self.ok(&format!("{text}: {actual:?}"));
        } else {
            self.fail(&format!("{text}: {actual:?}, not {expected:?}"));
        }
    }

    pub(crate) fn result(&mut self, text: &str, result: Result<String>) {
        match result {
            Ok(details) => self.ok(&format!("{text}: {details}")),
            Err(error) => self.fail(&format!("{text}: {error:#}")),
        }
    }

    /// Checks whether a program succeeded; a failure prints the end of its output.
    pub(crate) fn exit(&mut self, name: &str, status: impl Display, as_expected: bool, output: &str) {
        let text = format!("{name}: ends with {status}");
        if as_expected { self.ok(&text) } else { self.fail(&format!("{text}:\n{}", last_lines(output))) }
    }

    pub(crate) fn says(&mut self, name: &str, output: &str, part: &str) {
        if output.contains(part) {
            self.ok(&format!("{name}: {part}"));
        } else {
            self.fail(&format!("{name}: does not say {part:?}:\n{}", last_lines(output)));
        }
    }

    /// Checks that a line satisfies `fits`; `what` describes the line, as in "no line that ends with …".
    pub(crate) fn line(&mut self, name: &str, output: &str, what: &str, fits: impl Fn(&str) -> bool) {
        match output.lines().find(|line| fits(line)) {
            Some(line) => self.ok(&format!("{name}: {}", line.trim())),
            None => self.fail(&format!("{name}: no line {what}:\n{}", last_lines(output))),
        }
    }

    pub(crate) fn line_that_begins(&mut self, name: &str, output: &str, begin: &str) {
        self.line(name, output, &format!("that begins with {begin:?}"), |line| line.starts_with(begin));
    }

    pub(crate) fn line_that_ends(&mut self, name: &str, output: &str, end: &str) {
        self.line(name, output, &format!("that ends with {end:?}"), |line| line.ends_with(end));
    }

    /// Checks that a line has a number in this range directly before the words.
    pub(crate) fn number(&mut self, name: &str, output: &str, range: RangeInclusive<u64>, words: &str) {
        let what = format!("with a number in {range:?} before {words:?}");
        self.line(name, output, &what, |line| number_before(line, words).is_some_and(|found| range.contains(&found)));
    }

    pub(crate) fn end(self) -> Result<String> {
        match (self.passed, self.failed) {
            (0, 0) => bail!("nothing was checked"),
            (passed, 0) => Ok(format!("{passed} checks")),
            (passed, failed) => bail!("{failed} of {} checks failed", passed + failed),
        }
    }
}

/// Prints the output of a script of checks; returns how many passed.
pub(crate) fn counted(printed: &str) -> Result<usize> {
    print!("{printed}");
    let checks = printed.lines().filter(|line| line.starts_with("ok ")).count();
    ensure!(checks > 0, "nothing was checked");
    Ok(checks)
}

/// The last 20 lines.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// The number directly before the words.
pub(crate) fn number_before(line: &str, words: &str) -> Option<u64> {
    let (before, _) = line.split_once(words)?;
    let start = before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    before[start..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_fails_all_checks_and_so_does_having_none() {
        let mut checks = Checks::default();
        checks.that("fine", true);
        checks.equal("also", 2, 2);
        assert_eq!(checks.end().unwrap(), "2 checks");
        let mut checks = Checks::default();
        checks.that("fine", true);
        checks.says("not", "one\ntwo", "three");
        assert_eq!(checks.end().unwrap_err().to_string(), "1 of 2 checks failed");
        assert!(Checks::default().end().is_err());
    }

    #[test]
    fn a_number_is_read_directly_before_its_words() {
        assert_eq!(number_before("test result: 65 passed; 0 failed", " passed"), Some(65));
        assert_eq!(number_before("none passed", " passed"), None);
        assert_eq!(number_before("65 passed", " failed"), None);
    }
}
