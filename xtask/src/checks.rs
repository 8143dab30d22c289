//! Many small checks that do not stop at the first failure.

use anyhow::{Result, bail};

/// Prints a line for each check; at the end says how many there were, or fails.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    passed: usize,
    failed: usize,
}

impl Checks {
    pub(crate) fn that(&mut self, text: &str, holds: bool) {
        match holds {
            true => self.ok(text),
            false => self.fail(text),
        }
    }

    pub(crate) fn ok(&mut self, text: &str) {
        println!("ok    {text}");
        self.passed += 1;
    }

    pub(crate) fn fail(&mut self, text: &str) {
        println!("FAIL  {text}");
        self.failed += 1;
    }

    pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(&mut self, text: &str, made: T, expected: T) {
        match made == expected {
            true => self.ok(&format!("{text}: {made:?}")),
            false => self.fail(&format!("{text}: {made:?}, not {expected:?}")),
        }
    }

    /// What it says, whether it holds or not.
    pub(crate) fn result(&mut self, text: &str, result: Result<String>) {
        match result {
            Ok(said) => self.ok(&format!("{text}: {said}")),
            Err(error) => self.fail(&format!("{text}: {error:#}")),
        }
    }

    pub(crate) fn says(&mut self, name: &str, text: &str, part: &str) {
        match text.contains(part) {
            true => self.ok(&format!("{name}: {part}")),
            false => self.fail(&format!("{name}: does not say {part:?}:\n{}", last_lines(text))),
        }
    }

    pub(crate) fn end(self) -> Result<String> {
        match (self.passed, self.failed) {
            (0, 0) => bail!("nothing was checked"),
            (passed, 0) => Ok(format!("{passed} checks")),
            (passed, failed) => bail!("{failed} of {} checks failed", passed + failed),
        }
    }
}

/// The end of a long text.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_fails_them_all_and_none_at_all_does_too() {
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
}
