//! Errors of reading, writing and drawing recordings.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::visible;

/// An error whose message names what to do next.
///
/// Its kind is private, so new kinds can be added. Its [`source`](StdError::source) is the underlying I/O error, if
/// there is one.
#[derive(Clone)]
pub struct Error {
    kind: Kind,
}

/// Prints the same as `Display`, because a `main` that returns an error prints it with `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Clone)]
pub(crate) enum Kind {
    Message(String),
    Rules(String),
    Format { path: PathBuf, known: String },
    Exists(PathBuf),
    Output { path: PathBuf, source: Arc<io::Error>, then: Option<&'static str> },
    Write(Arc<io::Error>),
    Read { path: PathBuf, source: Arc<io::Error> },
    Parse { path: PathBuf, format: &'static str, reason: String, next: String },
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Self { kind }
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Kind::Write(source.into()).into()
    }
}

impl Error {
    #[doc(hidden)]
    pub fn format(path: &Path, known: &str) -> Self {
        Kind::Format { path: path.to_owned(), known: known.to_owned() }.into()
    }

    #[doc(hidden)]
    pub fn exists(path: &Path) -> Self {
        Kind::Exists(path.to_owned()).into()
    }

    #[doc(hidden)]
    pub fn output(path: &Path, source: io::Error) -> Self {
        Kind::Output { path: path.to_owned(), source: source.into(), then: None }.into()
    }

    #[doc(hidden)]
    pub fn input(path: &Path, source: io::Error) -> Self {
        Kind::Read { path: path.to_owned(), source: source.into() }.into()
    }

    #[doc(hidden)]
    pub fn size(text: &str) -> Self {
        Kind::Message(format!("cannot read {text:?} as a size; write it like 512 MiB, 1.5 GiB, 500 MB or 4096")).into()
    }

    pub(crate) fn drawing(what: &str, reason: String) -> Self {
        Kind::Message(format!("cannot draw the {what}: {reason}")).into()
    }

    pub(crate) fn moment(reason: String) -> Self {
        Kind::Message(format!("cannot show that moment: {reason}")).into()
    }

    pub(crate) fn allocator(reason: String) -> Self {
        Kind::Message(reason).into()
    }

    pub(crate) fn section(key: &str, known: &[&str]) -> Self {
        Kind::Message(format!("no section is called `{key}`; there are {}", known.join(", "))).into()
    }

    /// A parse error. `format` is the format's name with its article; [`at`](Self::at) adds the path.
    pub(crate) fn parse(format: &'static str, reason: String, next: impl Into<String>) -> Self {
        Kind::Parse { path: PathBuf::new(), format, reason, next: next.into() }.into()
    }

    /// Adds the path of the file that was being written or read.
    #[must_use]
    pub(crate) fn at(self, path: &Path) -> Self {
        let path = path.to_owned();
        match self.kind {
            Kind::Write(source) => Kind::Output { path, source, then: None },
            Kind::Format { known, .. } => Kind::Format { path, known },
            Kind::Parse { format, reason, next, .. } => Kind::Parse { path, format, reason, next },
            kind => kind,
        }
        .into()
    }

    /// Adds what the failure means for the file that could not be written.
    #[doc(hidden)]
    #[must_use]
    pub fn and(mut self, meaning: &'static str) -> Self {
        if let Kind::Output { then, .. } = &mut self.kind {
            *then = Some(meaning);
        }
        self
    }

    /// True if the output path already existed. Then nothing was written, and the old file is untouched.
    pub fn is_already_exists(&self) -> bool {
        matches!(self.kind, Kind::Exists(_))
    }
}

/// Prints one line. Control characters in names and paths are escaped.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&visible::line(&self.kind.to_string()))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(text) => f.write_str(text),
            Self::Rules(wrong) => write!(f, "the rule {wrong}; `Rules` says how rules are written"),
            Self::Format { path, known } => {
                write!(f, "{} has no known extension; use one of {known}, optionally with .gz", path.display())
            }
            Self::Exists(path) => {
                write!(f, "{} already exists and was not changed; use another name or move it away", path.display())
            }
            Self::Output { path, source, then } => {
                write!(f, "cannot write {}: {}", path.display(), source)?;
                then.map_or(Ok(()), |then| write!(f, "; {then}"))
            }
            Self::Write(source) => write!(f, "cannot write: {source}"),
            Self::Read { path, source } => write!(f, "cannot read {}: {}", path.display(), source),
            Self::Parse { path, format, reason, next } => {
                write!(f, "cannot read {} as {format}: {reason}; {next}", path.display())
            }
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.kind {
            Kind::Output { source, .. } | Kind::Read { source, .. } | Kind::Write(source) => Some(&**source),
            _ => None,
        }
    }
}
