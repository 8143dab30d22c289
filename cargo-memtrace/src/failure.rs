//! Exit codes: 0 for success, 1 for a check that failed, 2 for wrong use or unreadable input.

use std::fmt;
use std::process::ExitCode;

/// Why a command ends without success.
#[derive(Debug)]
pub(crate) enum CommandFailure {
    /// A check did not hold.
    Check(String),
    /// Wrong use, or input or output that does not work.
    Use(String),
}

impl CommandFailure {
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Check(_) => 1,
            Self::Use(_) => 2,
        })
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Use(text.into())
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Check(text) | Self::Use(text)) = self;
        f.write_str(text)
    }
}

impl From<memtrace_core::Error> for CommandFailure {
    fn from(error: memtrace_core::Error) -> Self {
        Self::Use(error.to_string())
    }
}
