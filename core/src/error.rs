//! What can go wrong with a recording that is finished: reading, writing, drawing it.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

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
    Size(String),
    Rules(String),
    Format { path: PathBuf, known: String },
    Exists(PathBuf),
    Output { path: PathBuf, source: Io, then: Option<&'static str> },
    Write(Io),
    Read { path: PathBuf, source: Io },
    Capture { path: PathBuf, reason: String },
    Operators { path: PathBuf, reason: String },
    Drawing { what: &'static str, reason: String },
    Moment(String),
    Section(String),
}

/// An I/O error; a clone has its code, or its kind and its text.
pub(crate) struct Io(io::Error);

impl Clone for Io {
    fn clone(&self) -> Self {
        Self(match self.0.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(self.0.kind(), self.0.to_string()),
        })
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Self { kind }
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Kind::Write(Io(source)).into()
    }
}

impl Error {
    /// It is no size.
    #[doc(hidden)]
    pub fn size(text: &str) -> Self {
        Kind::Size(text.to_owned()).into()
    }
    /// The name says no format; these are known.
    #[doc(hidden)]
    pub fn format(path: &Path, known: &str) -> Self {
        Kind::Format { path: path.to_owned(), known: known.to_owned() }.into()
    }
    /// The place is taken.
    #[doc(hidden)]
    pub fn exists(path: &Path) -> Self {
        Kind::Exists(path.to_owned()).into()
    }
    /// The file cannot be written.
    #[doc(hidden)]
    pub fn output(path: &Path, source: io::Error) -> Self {
        Kind::Output { path: path.to_owned(), source: Io(source), then: None }.into()
    }
    /// The file cannot be read.
    #[doc(hidden)]
    pub fn input(path: &Path, source: io::Error) -> Self {
        Kind::Read { path: path.to_owned(), source: Io(source) }.into()
    }
    pub(crate) fn capture(reason: String) -> Self {
        Kind::Capture { path: PathBuf::new(), reason }.into()
    }
    pub(crate) fn operators(reason: String) -> Self {
        Kind::Operators { path: PathBuf::new(), reason }.into()
    }
    pub(crate) fn drawing(what: &'static str, reason: String) -> Self {
        Kind::Drawing { what, reason }.into()
    }
    pub(crate) fn moment(reason: String) -> Self {
        Kind::Moment(reason).into()
    }
    pub(crate) fn section(key: &str, known: &[&str]) -> Self {
        Kind::Section(format!("no section is called `{key}`; there are {}", known.join(", "))).into()
    }

    /// The same with the file that was being written or read.
    #[must_use]
    pub(crate) fn at(self, path: &Path) -> Self {
        let path = path.to_owned();
        match self.kind {
            Kind::Write(source) => Kind::Output { path, source, then: None },
            Kind::Format { known, .. } => Kind::Format { path, known },
            Kind::Capture { reason, .. } => Kind::Capture { path, reason },
            Kind::Operators { reason, .. } => Kind::Operators { path, reason },
            kind => kind,
        }
        .into()
    }
    /// The same with what it means for what was to be written.
    #[doc(hidden)]
    #[must_use]
    pub fn and(mut self, meaning: &'static str) -> Self {
        if let Kind::Output { then, .. } = &mut self.kind {
            *then = Some(meaning);
        }
        self
    }
    /// True if the output path was taken; nothing was written and the old file is untouched.
    pub fn is_already_exists(&self) -> bool {
        matches!(self.kind, Kind::Exists(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Size(text) => {
                write!(f, "cannot read {text:?} as a size; write it like 512 MiB, 1.5 GiB, 500 MB or 4096")
            }
            Kind::Rules(wrong) => write!(f, "the rule {wrong}; `Rules` says how rules are written"),
            Kind::Format { path, known } => {
                write!(f, "{} names no format; let it end in one of {known}, with .gz if you like", path.display())
            }
            Kind::Exists(path) => {
                write!(f, "{} already exists and was left as it is; give another name or move it away", path.display())
            }
            Kind::Output { path, source, then } => {
                write!(f, "cannot write {}: {}", path.display(), source.0)?;
                then.map_or(Ok(()), |then| write!(f, "; {then}"))
            }
            Kind::Write(source) => write!(f, "cannot write: {}", source.0),
            Kind::Read { path, source } => write!(f, "cannot read {}: {}", path.display(), source.0),
            Kind::Capture { path, reason } => write!(
                f,
                "cannot read {} as a memtrace capture: {reason}; captures are written by \
                 `Snapshot::write` and `Builder::stream`",
                path.display()
            ),
            Kind::Operators { path, reason } => write!(
                f,
                "cannot read {} as a series of operators: {reason}; `Operators::write` writes them as .operators.json",
                path.display()
            ),
            Kind::Drawing { what, reason } => write!(f, "cannot draw the {what}: {reason}"),
            Kind::Moment(reason) => write!(f, "cannot show that moment: {reason}"),
            Kind::Section(text) => f.write_str(text),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.kind {
            Kind::Output { source, .. } | Kind::Read { source, .. } | Kind::Write(source) => Some(&source.0),
            _ => None,
        }
    }
}
