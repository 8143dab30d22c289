//! The error type of recordings, measurements and assertions.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::Path;

/// What failed, in a sentence that names the next step.
///
/// The kinds are private, so that they can grow. The underlying I/O error, if there is one, is the
/// [`source`](StdError::source). `Debug` prints the same as `Display`, so that an error returned from `main` is readable.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Clone)]
pub(crate) enum ErrorKind {
    AlreadyRecording,
    NotInstalled,
    CannotMeasure,
    Signal(String),
    NoRuns(&'static str),
    LeftEarly {
        runs: usize,
        of: usize,
    },
    /// Wrong use, with a complete message.
    Wrong(Cow<'static, str>),
    /// Reading, writing or drawing a finished recording failed.
    Core(memtrace_core::Error),
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind }
    }
}

impl From<memtrace_core::Error> for Error {
    fn from(error: memtrace_core::Error) -> Self {
        ErrorKind::Core(error).into()
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        memtrace_core::Error::from(error).into()
    }
}

impl Error {
    pub(crate) fn wrong(message: impl Into<Cow<'static, str>>) -> Self {
        ErrorKind::Wrong(message.into()).into()
    }

    pub(crate) fn output(path: &Path, source: io::Error) -> Self {
        memtrace_core::Error::output(path, source).into()
    }

    pub(crate) fn input(path: &Path, source: io::Error) -> Self {
        memtrace_core::Error::input(path, source).into()
    }

    /// Adds the consequence to an error of reading or writing.
    #[must_use]
    pub(crate) fn and(self, then: &'static str) -> Self {
        match self.kind {
            ErrorKind::Core(error) => error.and(then).into(),
            kind => kind.into(),
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
            ErrorKind::AlreadyRecording => write!(
                f,
                "a memtrace session is already recording; drop it before starting another \
                 (sessions may follow one another, but not overlap)"
            ),
            ErrorKind::Signal(text) if cfg!(not(feature = "signals")) => {
                write!(f, "cannot listen to signal {text:?}: build memtrace with its feature `signals`")
            }
            ErrorKind::Signal(text) => {
                write!(
                    f,
                    "cannot listen to signal {text:?}; give USR1, USR2 or the number of a signal that can be caught"
                )
            }
            ErrorKind::NotInstalled => write!(
                f,
                "memtrace sees no allocations: install its allocator in the program, with\n    \
                 #[global_allocator]\n    static ALLOC: memtrace::Alloc = memtrace::Alloc::system();\n\
                 or, to record only GPU memory, open the CUDA device first"
            ),
            ErrorKind::NoRuns(option) => write!(f, "{option} is 0, so nothing would be checked; give 1 or more"),
            ErrorKind::LeftEarly { runs, of } => write!(
                f,
                "only {runs} of {of} runs finished, so there is no verdict; let every run finish, without `return` or `?`"
            ),
            ErrorKind::CannotMeasure => write!(
                f,
                "cannot measure here: there is no memory left, or too many scopes are open on this thread; \
                 measure in an outer function"
            ),
            ErrorKind::Wrong(message) => f.write_str(message),
            ErrorKind::Core(error) => error.fmt(f),
        }
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
