//! The error type of recordings, measurements and assertions.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::Path;

use memtrace_core::visible;

pub(crate) const NOT_INSTALLED: &str = "memtrace sees no allocations: install its allocator in the program, with\n    \
     #[global_allocator]\n    static ALLOC: memtrace::Alloc = memtrace::Alloc::system();\n\
     or, to record only GPU memory, open the CUDA device first";

pub(crate) const CANNOT_MEASURE: &str = "cannot measure here: there is no memory left, or too many scopes are open on \
     this thread; measure in an outer function";

/// What failed, in a sentence that names the next step.
///
/// The kinds are private, so that new ones can be added. The underlying I/O error, if there is one, is the
/// [`source`](StdError::source). `Debug` prints the same as `Display`, so that an error returned from `main` is
/// readable.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
}

#[derive(Clone)]
enum ErrorKind {
    AlreadyRecording,
    /// Wrong use, with a complete message.
    Wrong(Cow<'static, str>),
    /// Reading, writing or drawing a finished recording failed.
    Core(memtrace_core::Error),
}

impl From<memtrace_core::Error> for Error {
    fn from(error: memtrace_core::Error) -> Self {
        Self { kind: ErrorKind::Core(error) }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        memtrace_core::Error::from(error).into()
    }
}

impl Error {
    pub(crate) fn already_recording() -> Self {
        Self { kind: ErrorKind::AlreadyRecording }
    }

    pub(crate) fn wrong(message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: ErrorKind::Wrong(message.into()) }
    }

    pub(crate) fn output(path: &Path, source: io::Error) -> Self {
        memtrace_core::Error::output(path, source).into()
    }

    pub(crate) fn input(path: &Path, source: io::Error) -> Self {
        memtrace_core::Error::input(path, source).into()
    }

    /// Adds to an error about an output file what the failure means, such as "nothing is recorded". Other errors stay
    /// as they are.
    #[must_use]
    pub(crate) fn and(self, then: &'static str) -> Self {
        match self.kind {
            ErrorKind::Core(error) => error.and(then).into(),
            kind => Self { kind },
        }
    }

    /// True if another session is active in this process.
    pub fn is_already_recording(&self) -> bool {
        matches!(self.kind, ErrorKind::AlreadyRecording)
    }

    /// True if the output file exists. Nothing was written, and the existing file is unchanged.
    pub fn is_already_exists(&self) -> bool {
        matches!(&self.kind, ErrorKind::Core(error) if error.is_already_exists())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ErrorKind::AlreadyRecording => f.write_str(
                "a memtrace session is already recording; drop it before starting another \
                 (sessions may follow one another, but not overlap)",
            ),
            // A constant text of memtrace's may have several lines. A formatted text contains names, so it is shown as
            // one line.
            ErrorKind::Wrong(Cow::Borrowed(message)) => f.write_str(message),
            ErrorKind::Wrong(Cow::Owned(message)) => f.write_str(&visible::line(message)),
            ErrorKind::Core(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.kind {
            ErrorKind::Core(error) => error.source(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_an_error_are_visible_and_our_own_lines_stay() {
        let error = Error::wrong(format!("cannot read {}", "a\u{1b}[2J\n::error::b"));
        assert_eq!(error.to_string(), "cannot read a\\u{1b}[2J\\n::error::b");
        assert!(Error::wrong(NOT_INSTALLED).to_string().contains("\n    #[global_allocator]\n"));
    }
}
