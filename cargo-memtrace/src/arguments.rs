//! Arguments that several commands take.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use memtrace_core::Device;
use memtrace_core::analysis::{Key, Moment};

use crate::moment;

/// What cargo builds.
#[derive(Args, Clone, Default)]
pub(crate) struct CargoArgs {
    /// Build with optimizations
    #[arg(long, short)]
    pub(crate) release: bool,
    /// Build with this profile
    #[arg(long, value_name = "NAME", conflicts_with = "release")]
    pub(crate) profile: Option<String>,
    /// The program
    #[arg(long, value_name = "NAME", conflicts_with_all = ["example", "bench"])]
    pub(crate) bin: Option<String>,
    /// The example
    #[arg(long, value_name = "NAME", conflicts_with = "bench")]
    pub(crate) example: Option<String>,
    /// The benchmark
    #[arg(long, value_name = "NAME")]
    pub(crate) bench: Option<String>,
    /// The package
    #[arg(long, short, value_name = "SPEC")]
    pub(crate) package: Option<String>,
    /// Features, separated by commas
    #[arg(long, short = 'F', value_name = "FEATURES")]
    pub(crate) features: Vec<String>,
    /// Activate all features
    #[arg(long)]
    pub(crate) all_features: bool,
    /// Do not activate the default features
    #[arg(long)]
    pub(crate) no_default_features: bool,
    /// Build for this target
    #[arg(long, value_name = "TRIPLE")]
    pub(crate) target: Option<String>,
    /// The package's Cargo.toml
    #[arg(long, value_name = "PATH")]
    pub(crate) manifest_path: Option<String>,
    /// Do not change Cargo.lock
    #[arg(long)]
    pub(crate) locked: bool,
    /// Do not use the network
    #[arg(long)]
    pub(crate) offline: bool,
}

/// What every reading command takes.
#[derive(Args, Clone)]
pub(crate) struct ReadingArgs {
    /// The recording [default: the newest one under cargo's target folder]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

/// Recordings of which several are the ranks of a job.
#[derive(Args, Clone)]
pub(crate) struct RanksArgs {
    /// The recording [default: the newest one under cargo's target folder]; several, or a folder of them, are ranks
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The job to read, of recordings of several jobs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) job: Option<u32>,
}

#[derive(Args, Clone)]
pub(crate) struct SelectionArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Which memory: cpu, cuda:0, pinned, managed [default: the device with the largest peak, GPUs first]
    #[arg(long, value_name = "DEVICE", value_parser = moment::device)]
    pub(crate) device: Option<Device>,
    /// Only from this moment on: peak, end, a time in seconds, step:N, scope:NAME
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse)]
    pub(crate) from: Option<Moment>,
    /// Only up to this moment
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse)]
    pub(crate) to: Option<Moment>,
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    /// Rows of a table
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) top: usize,
    /// Colours and bold headings
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorWhen,
}

/// Where the names of functions are.
#[derive(Args, Clone, Default)]
pub(crate) struct SourceArgs {
    /// A program, a library or a file of debug information that has moved; used if its build-id matches
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: Vec<PathBuf>,
    /// A folder of such files, and of debug information as below /usr/lib/debug (.build-id/AB/CDEF.debug)
    #[arg(long, value_name = "DIR")]
    pub(crate) debug_dir: Vec<PathBuf>,
}

/// Parses the key of a table (what its rows stand for): one of the words of [`Key`].
pub(crate) fn key() -> impl TypedValueParser<Value = Key> {
    one_of(Key::ALL.to_vec())
}

/// Like [`key`], for tables over time. A block's age is not among these keys, because it changes from moment to
/// moment.
pub(crate) fn key_over_time() -> impl TypedValueParser<Value = Key> {
    one_of(Key::ALL.into_iter().filter(|key| *key != Key::Age).collect())
}

fn one_of(keys: Vec<Key>) -> impl TypedValueParser<Value = Key> {
    PossibleValuesParser::new(keys.into_iter().map(Key::word)).map(|word| Key::from_word(&word).unwrap_or_default())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    Auto,
    Always,
    Never,
}
