//! What can go wrong with a recording or a measurement.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::Path;

/// What went wrong, in a sentence that names the next step.
///
/// The kind is private so that it can grow; the underlying I/O error, if there is one, is its
/// [`source`](StdError::source).
#[derive(Clone)]
pub struct Error {
    kind: Kind,
}

/// As `Display`: `main` prints the error that it returns so.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Clone)]
pub(crate) enum Kind {
    AlreadyRecording,
    NotInstalled,
    CannotMeasure,
    Signal(String),
    NoRuns(&'static str),
    LeftEarly {
        runs: usize,
        of: usize,
    },
    /// What makes no sense, said where that is found out.
    Wrong(Cow<'static, str>),
    /// Of a recording that is finished: reading, writing, drawing it.
    Core(memtrace_core::Error),
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Self { kind }
    }
}

impl From<memtrace_core::Error> for Error {
    fn from(error: memtrace_core::Error) -> Self {
        Kind::Core(error).into()
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        memtrace_core::Error::from(error).into()
    }
}

impl Error {
    pub(crate) fn wrong(message: impl Into<Cow<'static, str>>) -> Self {
        Kind::Wrong(message.into()).into()
    }
    pub(crate) fn output(path: &Path, source: io::Error) -> Self {
        memtrace_core::Error::output(path, source).into()
    }
    pub(crate) fn input(path: &Path, source: io::Error) -> Self {
        memtrace_core::Error::input(path, source).into()
    }
    /// The same with what it means for what was to be written.
    #[must_use]
    pub(crate) fn and(self, then: &'static str) -> Self {
        match self.kind {
            Kind::Core(error) => error.and(then).into(),
            kind => kind.into(),
        }
    }
    /// True if a session is already recording in this process.
    pub fn is_already_recording(&self) -> bool {
        matches!(self.kind, Kind::AlreadyRecording)
    }
    /// True if the output path was taken; nothing was written and the old file is untouched.
    pub fn is_already_exists(&self) -> bool {
        matches!(&self.kind, Kind::Core(error) if error.is_already_exists())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::AlreadyRecording => write!(
                f,
                "a memtrace session is already recording; drop it before starting another \
                 (recordings may follow one another, not overlap)"
            ),
            Kind::Signal(text) if cfg!(not(feature = "signals")) => {
                write!(f, "cannot listen to signal {text:?}: build memtrace with its feature `signals`")
            }
            Kind::Signal(text) => {
                write!(f, "cannot listen to signal {text:?}; give USR1, USR2 or the number of one that can be caught")
            }
            Kind::NotInstalled => write!(
                f,
                "memtrace sees no allocations: install its allocator in the program, with\n    \
                 #[global_allocator]\n    static ALLOC: memtrace::Alloc = memtrace::Alloc::system();\n\
                 or, if the memory of a GPU is all that is to be measured, open its device before"
            ),
            Kind::NoRuns(option) => write!(f, "{option} is 0, so nothing would be checked; give 1 or more"),
            Kind::LeftEarly { runs, of } => write!(
                f,
                "only {runs} of {of} runs came to their end, so nothing can be said; let the code run through"
            ),
            Kind::CannotMeasure => write!(
                f,
                "cannot measure here: there is no memory left, or too many scopes are open on this thread; \
                 measure further out"
            ),
            Kind::Wrong(message) => f.write_str(message),
            Kind::Core(error) => error.fmt(f),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.kind {
            Kind::Core(error) => error.source(),
            _ => None,
        }
    }
}
