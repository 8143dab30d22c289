//! What can go wrong with a recording or a measurement.

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
    AlreadyRecording,
    NoEntries,
    MinSize(u64),
    SampleInterval(u64),
    StackDepth(usize),
    Schedule,
    /// Two options that exclude each other, and why.
    Together(&'static str),
    Signal(String),
    Variable {
        name: String,
        value: String,
        accepted: String,
    },
    NotInstalled,
    Forked,
    CannotMeasure,
    AnotherCopy,
    NoLimit,
    NoRuns(&'static str),
    NoCuda(String),
    LeftEarly {
        runs: usize,
        of: usize,
    },
    FewRuns {
        runs: usize,
        warmup: usize,
        least: usize,
    },
    Sizes,
    Percent(String),
    Baselines {
        path: PathBuf,
        reason: String,
    },
    SourceFile {
        source: String,
        package: PathBuf,
    },
    #[cfg(feature = "rayon")]
    Pool(String),
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
    pub(crate) fn variable(name: &str, value: &str, accepted: &str) -> Self {
        let (name, value, accepted) = (name.to_owned(), value.to_owned(), accepted.to_owned());
        Kind::Variable { name, value, accepted }.into()
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
            Kind::NoEntries => write!(
                f,
                "max_entries is 0; give the number of records to keep (1 or more), \
                 or `enabled(Enabled::State)` for a recording without event history"
            ),
            Kind::MinSize(bytes) => {
                let below = 1u64 << bytes.ilog2();
                write!(f, "min_size is {bytes} bytes, which is not a power of two; use {below}")?;
                bytes.checked_next_power_of_two().map_or(Ok(()), |above| write!(f, " or {above}"))
            }
            Kind::SampleInterval(bytes) => {
                let below = 1u64 << (*bytes).max(1).ilog2().min(30);
                write!(
                    f,
                    "sample_interval is {bytes} bytes; give a power of two of at most 1 GiB, such as {below}, or 0"
                )
            }
            Kind::StackDepth(frames) => {
                write!(f, "stack_depth is {frames}; give 2 to {} frames", crate::units::MAX_STACK_DEPTH)
            }
            Kind::Schedule => {
                write!(f, "a schedule needs at least one active step in a cycle; give wait, warmup, active, repeat")
            }
            Kind::Together(why) => f.write_str(why),
            Kind::Signal(text) if cfg!(not(feature = "signals")) => {
                write!(f, "cannot listen to signal {text:?}: build memtrace with its feature `signals`")
            }
            Kind::Signal(text) => {
                write!(f, "cannot listen to signal {text:?}; give USR1, USR2 or the number of one that can be caught")
            }
            Kind::Variable { name, value, accepted } => write!(f, "{name} is {value:?}; it takes {accepted}"),
            Kind::NotInstalled => write!(
                f,
                "memtrace sees no allocations: install its allocator in the program, with\n    \
                 #[global_allocator]\n    static ALLOC: memtrace::Alloc = memtrace::Alloc::system();\n\
                 or, if the memory of a GPU is all that is to be measured, open its device before"
            ),
            Kind::Forked => {
                write!(f, "cannot record in a process that was forked off a recording one; fork first, or exec")
            }
            Kind::NoLimit => write!(f, "nothing to hold the peak against; give a limit (\"512 MiB\") or a baseline"),
            Kind::NoRuns(option) => write!(f, "{option} is 0, so nothing would be checked; give 1 or more"),
            Kind::NoCuda(device) => {
                write!(f, "memory of {device} cannot be seen: the CUDA driver is not loaded; open the device before")
            }
            Kind::LeftEarly { runs, of } => write!(
                f,
                "only {runs} of {of} runs came to their end, so nothing can be said; let the code run through"
            ),
            Kind::FewRuns { runs, warmup, least } => write!(
                f,
                "{runs} iterations with {warmup} to warm up say too little about growth; give {least} or more, and 10 \
                 or more after the warm-up"
            ),
            Kind::Sizes => write!(
                f,
                "too few sizes to tell how memory scales; give three or more above 0, the largest at least four times \
                 the smallest and twice the one before it"
            ),
            Kind::Percent(text) => write!(f, "cannot read {text:?} as a tolerance; write it like 5% or 0.5%"),
            Kind::Baselines { path, reason } => {
                write!(
                    f,
                    "cannot read the baselines of {}: {reason}; mend it, or remove it and make it anew",
                    path.display()
                )
            }
            Kind::SourceFile { source, package } => write!(
                f,
                "cannot find {source} from {}, beside which the baselines stand; run the tests with cargo, where \
                 the sources are",
                package.display()
            ),
            Kind::AnotherCopy => write!(
                f,
                "cannot measure here: another copy of memtrace in this process sees CUDA's memory, and this one does not; \
                 use one copy only"
            ),
            Kind::CannotMeasure => write!(
                f,
                "cannot measure here: there is no memory left, or too many scopes are open on this thread; \
                 measure further out"
            ),
            #[cfg(feature = "rayon")]
            Kind::Pool(source) => write!(f, "cannot start a pool of threads to measure: {source}; use fewer workers"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_threshold_that_is_no_power_of_two_both_neighbours_are_named_if_there_are_two() {
        let text = |bytes| Error::from(Kind::MinSize(bytes)).to_string();
        assert!(text(1500).ends_with("use 1024 or 2048"), "{}", text(1500));
        assert!(text(u64::MAX).ends_with("use 9223372036854775808"), "{}", text(u64::MAX));
    }
}
