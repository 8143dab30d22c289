//! Exit codes: 0 for success, 1 for a check that failed, 2 for wrong use or unreadable input, 3 for an undecided check.

use std::fmt;
use std::process::ExitCode;

/// Why a command ends without success.
#[derive(Debug)]
pub(crate) enum CommandFailure {
    /// Checks that failed.
    Check(Vec<String>),
    /// Checks that are undecided, because the recording does not have the answer.
    Undecided(Vec<String>),
    /// Wrong use, or input or output that failed.
    Use(String),
}

impl CommandFailure {
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Check(_) => 1,
            Self::Use(_) => 2,
            Self::Undecided(_) => 3,
        })
    }

    /// The word with which the lines begin.
    pub(crate) fn word(&self) -> &'static str {
        if let Self::Undecided(_) = self { "undecided" } else { "error" }
    }

    /// A line for each error.
    pub(crate) fn lines(&self) -> &[String] {
        match self {
            Self::Check(lines) | Self::Undecided(lines) => lines,
            Self::Use(line) => std::slice::from_ref(line),
        }
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Use(text.into())
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("; "))
    }
}

impl From<memtrace_core::Error> for CommandFailure {
    fn from(error: memtrace_core::Error) -> Self {
        Self::Use(error.to_string())
    }
}
