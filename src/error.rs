//! The one error type.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What went wrong, in a sentence that names the next step.
///
/// The kind is private so that it can grow; the underlying I/O error, if there is one, is its
/// [`source`](StdError::source).
pub struct Error {
    kind: Kind,
}

/// As `Display`: `main` prints the error that it returns so.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug)]
enum Kind {
    AlreadyRecording,
    NoEntries,
    MinSize(u64),
    SampleInterval(u64),
    StackDepth(usize),
    Size(String),
    Schedule,
    /// Two options that exclude each other, and why.
    Together(&'static str),
    Signal(String),
    Rules(String),
    Variable {
        name: String,
        value: String,
        accepted: String,
    },
    Format {
        path: PathBuf,
        known: String,
    },
    NotInstalled,
    Forked,
    CannotMeasure,
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
    Exists(PathBuf),
    Output {
        path: PathBuf,
        source: io::Error,
        /// What that means for what was to be written.
        then: Option<&'static str>,
    },
    Write(io::Error),
    Read {
        path: PathBuf,
        source: io::Error,
    },
    Capture {
        path: PathBuf,
        reason: String,
    },
    Operators {
        path: PathBuf,
        reason: String,
    },
    #[cfg(feature = "figures")]
    Figure(String),
    #[cfg(feature = "flamegraph")]
    Drawing(io::Error),
}

impl Error {
    fn new(kind: Kind) -> Self {
        Self { kind }
    }
    pub(crate) fn already_recording() -> Self {
        Self::new(Kind::AlreadyRecording)
    }
    pub(crate) fn no_entries() -> Self {
        Self::new(Kind::NoEntries)
    }
    pub(crate) fn min_size(bytes: u64) -> Self {
        Self::new(Kind::MinSize(bytes))
    }
    pub(crate) fn sample_interval(bytes: u64) -> Self {
        Self::new(Kind::SampleInterval(bytes))
    }
    pub(crate) fn stack_depth(frames: usize) -> Self {
        Self::new(Kind::StackDepth(frames))
    }
    pub(crate) fn size(text: &str) -> Self {
        Self::new(Kind::Size(text.to_owned()))
    }
    pub(crate) fn schedule() -> Self {
        Self::new(Kind::Schedule)
    }
    pub(crate) fn together(why: &'static str) -> Self {
        Self::new(Kind::Together(why))
    }
    pub(crate) fn signal(text: &str) -> Self {
        Self::new(Kind::Signal(text.to_owned()))
    }
    pub(crate) fn rules(wrong: String) -> Self {
        Self::new(Kind::Rules(wrong))
    }
    pub(crate) fn variable(name: &str, value: &str, accepted: &str) -> Self {
        let (name, value, accepted) = (name.to_owned(), value.to_owned(), accepted.to_owned());
        Self::new(Kind::Variable { name, value, accepted })
    }
    pub(crate) fn format(path: &Path, known: &str) -> Self {
        Self::new(Kind::Format { path: path.to_owned(), known: known.to_owned() })
    }
    pub(crate) fn not_installed() -> Self {
        Self::new(Kind::NotInstalled)
    }
    pub(crate) fn forked() -> Self {
        Self::new(Kind::Forked)
    }
    pub(crate) fn cannot_measure() -> Self {
        Self::new(Kind::CannotMeasure)
    }
    #[cfg(feature = "rayon")]
    pub(crate) fn pool(source: rayon::ThreadPoolBuildError) -> Self {
        Self::new(Kind::Pool(source.to_string()))
    }
    pub(crate) fn no_limit() -> Self {
        Self::new(Kind::NoLimit)
    }
    pub(crate) fn no_cuda(device: String) -> Self {
        Self::new(Kind::NoCuda(device))
    }
    pub(crate) fn left_early(runs: usize, of: usize) -> Self {
        Self::new(Kind::LeftEarly { runs, of })
    }
    pub(crate) fn no_runs(option: &'static str) -> Self {
        Self::new(Kind::NoRuns(option))
    }
    pub(crate) fn few_runs(runs: usize, warmup: usize, least: usize) -> Self {
        Self::new(Kind::FewRuns { runs, warmup, least })
    }
    pub(crate) fn sizes() -> Self {
        Self::new(Kind::Sizes)
    }
    pub(crate) fn percent(text: &str) -> Self {
        Self::new(Kind::Percent(text.to_owned()))
    }
    pub(crate) fn baselines(path: &Path, reason: String) -> Self {
        Self::new(Kind::Baselines { path: path.to_owned(), reason })
    }
    pub(crate) fn source_file(source: &str, package: &Path) -> Self {
        Self::new(Kind::SourceFile { source: source.to_owned(), package: package.to_owned() })
    }
    pub(crate) fn exists(path: &Path) -> Self {
        Self::new(Kind::Exists(path.to_owned()))
    }
    pub(crate) fn output(path: &Path, source: io::Error) -> Self {
        Self::new(Kind::Output { path: path.to_owned(), source, then: None })
    }
    #[cfg(feature = "flamegraph")]
    pub(crate) fn flamegraph(source: io::Error) -> Self {
        Self::new(Kind::Drawing(source))
    }
    pub(crate) fn input(path: &Path, source: io::Error) -> Self {
        Self::new(Kind::Read { path: path.to_owned(), source })
    }
    pub(crate) fn capture(reason: String) -> Self {
        Self::new(Kind::Capture { path: PathBuf::new(), reason })
    }
    pub(crate) fn operators(reason: String) -> Self {
        Self::new(Kind::Operators { path: PathBuf::new(), reason })
    }
    #[cfg(feature = "figures")]
    pub(crate) fn figure(reason: String) -> Self {
        Self::new(Kind::Figure(reason))
    }
    /// The same with the file that was being written or read.
    pub(crate) fn at(self, path: &Path) -> Self {
        match self.kind {
            Kind::Write(source) => Self::output(path, source),
            Kind::Capture { reason, .. } => Self::new(Kind::Capture { path: path.to_owned(), reason }),
            Kind::Operators { reason, .. } => Self::new(Kind::Operators { path: path.to_owned(), reason }),
            kind => Self { kind },
        }
    }
    /// The same with what it means for what was to be written.
    pub(crate) fn and(self, then: &'static str) -> Self {
        match self.kind {
            Kind::Output { path, source, .. } => Self::new(Kind::Output { path, source, then: Some(then) }),
            kind => Self { kind },
        }
    }
    /// The same error in memory of its own.
    pub(crate) fn duplicate(&self) -> Self {
        Self::new(match &self.kind {
            Kind::AlreadyRecording => Kind::AlreadyRecording,
            Kind::NoEntries => Kind::NoEntries,
            Kind::MinSize(bytes) => Kind::MinSize(*bytes),
            Kind::SampleInterval(bytes) => Kind::SampleInterval(*bytes),
            Kind::StackDepth(frames) => Kind::StackDepth(*frames),
            Kind::Size(text) => Kind::Size(text.clone()),
            Kind::Schedule => Kind::Schedule,
            Kind::Together(why) => Kind::Together(why),
            Kind::Signal(text) => Kind::Signal(text.clone()),
            Kind::Rules(wrong) => Kind::Rules(wrong.clone()),
            Kind::Variable { name, value, accepted } => {
                Kind::Variable { name: name.clone(), value: value.clone(), accepted: accepted.clone() }
            }
            Kind::Format { path, known } => Kind::Format { path: path.clone(), known: known.clone() },
            Kind::NotInstalled => Kind::NotInstalled,
            Kind::Forked => Kind::Forked,
            Kind::CannotMeasure => Kind::CannotMeasure,
            Kind::NoLimit => Kind::NoLimit,
            Kind::NoRuns(option) => Kind::NoRuns(option),
            Kind::NoCuda(device) => Kind::NoCuda(device.clone()),
            Kind::LeftEarly { runs, of } => Kind::LeftEarly { runs: *runs, of: *of },
            Kind::FewRuns { runs, warmup, least } => Kind::FewRuns { runs: *runs, warmup: *warmup, least: *least },
            Kind::Sizes => Kind::Sizes,
            Kind::Percent(text) => Kind::Percent(text.clone()),
            Kind::Baselines { path, reason } => Kind::Baselines { path: path.clone(), reason: reason.clone() },
            Kind::SourceFile { source, package } => {
                Kind::SourceFile { source: source.clone(), package: package.clone() }
            }
            #[cfg(feature = "rayon")]
            Kind::Pool(source) => Kind::Pool(source.clone()),
            Kind::Exists(path) => Kind::Exists(path.clone()),
            Kind::Output { path, source, then } => {
                Kind::Output { path: path.clone(), source: same(source), then: *then }
            }
            Kind::Write(source) => Kind::Write(same(source)),
            Kind::Read { path, source } => Kind::Read { path: path.clone(), source: same(source) },
            Kind::Capture { path, reason } => Kind::Capture { path: path.clone(), reason: reason.clone() },
            Kind::Operators { path, reason } => Kind::Operators { path: path.clone(), reason: reason.clone() },
            #[cfg(feature = "figures")]
            Kind::Figure(reason) => Kind::Figure(reason.clone()),
            #[cfg(feature = "flamegraph")]
            Kind::Drawing(source) => Kind::Drawing(same(source)),
        })
    }
    /// True if a session is already recording in this process.
    pub fn is_already_recording(&self) -> bool {
        matches!(self.kind, Kind::AlreadyRecording)
    }
    /// True if the output path was taken; nothing was written and the old file is untouched.
    pub fn is_already_exists(&self) -> bool {
        matches!(self.kind, Kind::Exists(_))
    }
}

fn same(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
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
            Kind::Size(text) => {
                write!(f, "cannot read {text:?} as a size; write it like 512 MiB, 1.5 GiB, 500 MB or 4096")
            }
            Kind::Schedule => {
                write!(f, "a schedule needs at least one active step in a cycle; give wait, warmup, active, repeat")
            }
            Kind::Together(why) => f.write_str(why),
            Kind::Signal(text) => {
                write!(f, "cannot listen to signal {text:?}; give USR1, USR2 or the number of one that can be caught")
            }
            Kind::Rules(wrong) => write!(f, "the rule {wrong}; `Rules` says how rules are written"),
            Kind::Variable { name, value, accepted } => write!(f, "{name} is {value:?}; it takes {accepted}"),
            Kind::Format { path, known } => {
                write!(f, "{} names no format; let it end in one of {known}, with .gz if you like", path.display())
            }
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
            Kind::CannotMeasure => write!(
                f,
                "cannot measure here: there is no memory left, or too many scopes are open on this thread; \
                 measure further out"
            ),
            #[cfg(feature = "rayon")]
            Kind::Pool(source) => write!(f, "cannot start a pool of threads to measure: {source}; use fewer workers"),
            Kind::Exists(path) => {
                write!(f, "{} already exists and was left as it is; give another name or move it away", path.display())
            }
            Kind::Output { path, source, then } => {
                write!(f, "cannot write {}: {source}", path.display())?;
                then.map_or(Ok(()), |then| write!(f, "; {then}"))
            }
            Kind::Write(source) => write!(f, "cannot write: {source}"),
            Kind::Read { path, source } => write!(f, "cannot read {}: {source}", path.display()),
            Kind::Capture { path, reason } => write!(
                f,
                "cannot read {} as a memtrace capture: {reason}; captures are written by \
                 `Snapshot::write_capture` and `Builder::stream`",
                path.display()
            ),
            Kind::Operators { path, reason } => write!(
                f,
                "cannot read {} as a series of operators: {reason}; `Operators::write` writes them as .operators.json",
                path.display()
            ),
            #[cfg(feature = "figures")]
            Kind::Figure(reason) => write!(f, "cannot draw the figure: {reason}"),
            #[cfg(feature = "flamegraph")]
            Kind::Drawing(source) => write!(f, "cannot draw the flamegraph: {source}"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.kind {
            Kind::Output { source, .. } | Kind::Read { source, .. } | Kind::Write(source) => Some(source),
            #[cfg(feature = "flamegraph")]
            Kind::Drawing(source) => Some(source),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Self::new(Kind::Write(source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_threshold_that_is_no_power_of_two_both_neighbours_are_named_if_there_are_two() {
        let text = |bytes| Error::min_size(bytes).to_string();
        assert!(text(1500).ends_with("use 1024 or 2048"), "{}", text(1500));
        assert!(text(u64::MAX).ends_with("use 9223372036854775808"), "{}", text(u64::MAX));
    }
}
