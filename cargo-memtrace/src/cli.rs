//! Arguments and help texts.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Records Rust programs that use candle or cudarc, and says who held the memory at the peak: source line, operator,
/// module, parameter and scope, to the byte.
#[derive(Parser)]
#[command(
    name = "cargo memtrace",
    bin_name = "cargo memtrace",
    version,
    arg_required_else_help = true,
    after_help = "Examples:\n  cargo memtrace run --release                     build, run and record this package\n  cargo memtrace run --features cuda --simulate 24GiB     the same on a simulated GPU\n  cargo memtrace report                            who held the memory at the peak of the newest recording\n  cargo memtrace explain src/train.rs:32           all blocks of this line\n  cargo memtrace diff before.memtrace after.memtrace      what a change did\n  cargo memtrace check --peak 6GiB                 exit code 1 if the peak is higher\n  cargo memtrace help run                          more about a command, with examples\n\nFILE is a capture (.memtrace), a folder of captures, a PyTorch snapshot (.pickle, .pickle.gz), or nothing: the newest recording under cargo's target folder.\nExit codes: 0 success, 1 a check failed, 2 wrong use or unreadable input, 3 a check is undecided."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Build, run and record a program
    Run(RunArgs),
    /// Run tests, on a real or a simulated GPU
    Test(TestArgs),
    /// Print the answer, then tables: by line, function, operator, category, scope …
    Report(ReportArgs),
    /// Print what could be better, the largest saving first
    #[command(after_help = "Examples:
  cargo memtrace advise
  cargo memtrace advise run.memtrace --device cuda:0 --json")]
    Advise(AdviseArgs),
    /// Print all blocks of a line or operator, or the life of one block
    Explain(ExplainArgs),
    /// Print what is live at the end
    #[command(after_help = "Examples:
  cargo memtrace leaks
  cargo memtrace leaks run.memtrace --from step:2 --top 5")]
    Leaks(ReadingArgs),
    /// Print blocks that were freed soon after they were allocated
    #[command(after_help = "Examples:
  cargo memtrace temporaries
  cargo memtrace temporaries run.memtrace --device cpu --top 5")]
    Temporaries(ReadingArgs),
    /// Print what changed between two recordings, or two moments of one
    Diff(DiffArgs),
    /// Draw a flamegraph of what held the peak
    Flamegraph(FlamegraphArgs),
    /// Draw live memory over time
    Timeline(TimelineArgs),
    /// Make the offline page of a recording, and open it in a browser
    View(ViewArgs),
    /// Write a recording in the format of another tool
    Export(ExportArgs),
    /// Fail if a recording's peak or leaks are over a limit
    Check(CheckArgs),
    /// Say whether a program fits on GPUs, and up to which size
    Fit(FitArgs),
    /// Show and accept changed peaks of tests
    Baselines(BaselinesArgs),
    /// Print what is installed, and what of a program can be recorded
    Doctor(DoctorArgs),
    /// Print completions for a shell
    #[command(after_help = "Examples:
  cargo memtrace completions bash >~/.local/share/bash-completion/completions/cargo-memtrace
  cargo memtrace completions zsh >~/.zfunc/_cargo-memtrace")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(after_help = "Examples:
  cargo memtrace man | man -l -")]
    Man,
}

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

#[derive(Args, Default)]
#[command(
    after_help = "Builds as `cargo build` does, with line tables for this build only. Signals go to the program; its exit code is the command's.

Any program is recorded as it is: with a preloaded library, its heap (C's malloc, which Rust's default allocator calls) and its CUDA
memory; only with an allocator of its own or without dynamic linking its heap is not seen, which is said. A program with memtrace in
it records itself, with scopes and names, from before `main`.

Examples:
  cargo memtrace run --release
  cargo memtrace run --release --example train -- --epochs 1
  cargo memtrace run --release --features cuda --simulate 24GiB
  cargo memtrace run --exec ./server -- --port 8080"
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) cargo: CargoArgs,
    /// Run on a simulated GPU with this memory; several, separated by commas
    #[arg(long, value_name = "MEM[,MEM…]")]
    pub(crate) simulate: Option<String>,
    /// Record blocks of at least this size; smaller ones are only counted
    #[arg(long, value_name = "SIZE", value_parser = crate::moment::size)]
    pub(crate) min_size: Option<u64>,
    /// Sample smaller blocks: one sample point every SIZE bytes on average
    #[arg(long, value_name = "SIZE", value_parser = crate::moment::size)]
    pub(crate) sample_interval: Option<u64>,
    /// Record which kernel, copy or fill uses each GPU block first and last
    #[arg(long)]
    pub(crate) uses: bool,
    /// Record the processes that the program starts, too, and keep those that held at least SIZE [default: 1 MiB]
    #[arg(long, value_name = "SIZE", value_parser = crate::moment::size, num_args = 0..=1, require_equals = true, default_missing_value = "1MiB")]
    pub(crate) children: Option<u64>,
    /// Where the recording goes [default: target/memtrace/PROGRAM-N.memtrace]
    #[arg(long, short, visible_alias = "output", value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Remove older recordings of the program in the default folder beyond N
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) keep: usize,
    /// Run this program, and build nothing
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) exec: Option<PathBuf>,
    /// Arguments of the program
    #[arg(last = true)]
    pub(crate) args: Vec<std::ffi::OsString>,
    /// Further variables of the program
    #[arg(skip)]
    pub(crate) variables: Vec<(String, String)>,
}

#[derive(Args)]
#[command(
    after_help = "Runs the program on a simulated GPU that is larger than any: what it asks for is exact. What CUDA takes beside that is a range,
whose upper end counts. Without --gpus, a line for each card that is known.

NAME=1,2,4 or NAME=512..32768 (NAME=512..32768/128: multiples of 128) is given to the program as the variable NAME, and in place of
{NAME} in its arguments.
Exit codes: 0 it fits, 1 it does not, 3 undecided; of several cards, all count.

Examples:
  cargo memtrace fit --release --features cuda
  cargo memtrace fit --gpus RTX-4090,A10G,48GiB --release --features cuda
  cargo memtrace fit --gpus RTX-4090 --vary batch=1..256 --features cuda -- --batch {batch}
  cargo memtrace fit --gpus A10G --recording run.memtrace"
)]
pub(crate) struct FitArgs {
    #[command(flatten)]
    pub(crate) cargo: CargoArgs,
    /// The cards, by name (RTX-4090) or by memory as CUDA reports it (48GiB)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) gpus: Vec<String>,
    /// Run the program with each of these values; of a range, look for the largest that fits
    #[arg(long, value_name = "NAME=VALUES", value_parser = vary)]
    pub(crate) vary: Option<Vary>,
    /// What other processes and the display use of each card
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = crate::moment::size)]
    pub(crate) reserve: u64,
    /// Judge this recording, and run nothing
    #[arg(long, value_name = "FILE", conflicts_with = "vary")]
    pub(crate) recording: Option<PathBuf>,
    /// Print a Markdown table of all values that were tried, for a README
    #[arg(long, requires = "vary", conflicts_with = "json")]
    pub(crate) md: bool,
    /// Run this program, and build nothing
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) exec: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Arguments of the program
    #[arg(last = true)]
    pub(crate) args: Vec<std::ffi::OsString>,
}

/// What varies from run to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vary {
    pub(crate) name: String,
    pub(crate) values: VaryValues,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VaryValues {
    List(Vec<u64>),
    Range { from: u64, to: u64, step: u64 },
}

fn vary(text: &str) -> Result<Vary, String> {
    let wrong = || "write NAME=1,2,4 or NAME=512..32768 or, in multiples of 128, NAME=512..32768/128".to_owned();
    let (name, values) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0).ok_or_else(wrong);
    let values = match values.split_once("..") {
        Some((from, to)) => {
            let (to, step) = to.split_once('/').unwrap_or((to, "1"));
            VaryValues::Range { from: number(from)?, to: number(to)?, step: number(step)? }
        }
        None => VaryValues::List(values.split(',').map(number).collect::<Result<_, _>>()?),
    };
    match values {
        VaryValues::Range { from, to, .. } if from > to => Err(wrong()),
        values => Ok(Vary { name: name.to_owned(), values }),
    }
}

#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace test --release --simulate 24GiB --features cuda
  cargo memtrace test --release -- nextest run
  cargo memtrace test -- forward -- --nocapture")]
pub(crate) struct TestArgs {
    #[command(flatten)]
    pub(crate) cargo: CargoArgs,
    /// Run on a simulated GPU with this memory [default: a real GPU if there is one, else a simulated one]
    #[arg(long, value_name = "MEM[,MEM…]")]
    pub(crate) simulate: Option<String>,
    /// Arguments of `cargo test`, or `nextest` and its arguments
    #[arg(last = true)]
    pub(crate) args: Vec<std::ffi::OsString>,
}

#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace doctor                         is everything there that the commands need?
  cargo memtrace doctor target/release/train    what of this program can be recorded, and why not the rest
  cargo memtrace doctor --gpu                   does this machine's GPU behave as memtrace expects?")]
pub(crate) struct DoctorArgs {
    /// A program's file
    pub(crate) program: Option<PathBuf>,
    /// Check on the first GPU of this machine what memtrace expects of NVIDIA's driver: takes seconds, and 300 MiB
    #[arg(long, conflicts_with = "program")]
    pub(crate) gpu: bool,
}

/// What every reading command takes.
#[derive(Args, Clone)]
pub(crate) struct ReadingArgs {
    /// The recording [default: the newest one under cargo's target folder]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

#[derive(Args, Clone)]
pub(crate) struct SelectionArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Which memory: cpu, cuda:0, pinned, managed [default: the device with the largest peak, GPUs first]
    #[arg(long, value_name = "DEVICE", value_parser = crate::moment::device)]
    pub(crate) device: Option<memtrace_core::Device>,
    /// Only from this moment on: peak, end, a time in seconds, step:N, scope:NAME
    #[arg(long, value_name = "MOMENT", value_parser = crate::moment::parse)]
    pub(crate) from: Option<memtrace_core::analysis::Moment>,
    /// Only up to this moment
    #[arg(long, value_name = "MOMENT", value_parser = crate::moment::parse)]
    pub(crate) to: Option<memtrace_core::analysis::Moment>,
    /// A program, a library or a file of debug information that has moved; used if its build-id matches
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: Vec<PathBuf>,
    /// A folder of such files, and of debug information as below /usr/lib/debug (.build-id/AB/CDEF.debug)
    #[arg(long, value_name = "DIR")]
    pub(crate) debug_dir: Vec<PathBuf>,
    /// Rows of a table
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) top: usize,
    /// Colours and bold headings
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorWhen,
}

#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace report
  cargo memtrace report run.memtrace --by line,operator --top 5
  cargo memtrace report --at step:3
  cargo memtrace report --at scope:forward --by line")]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
    /// Tables to print
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) by: Vec<By>,
    /// The moment: peak, end, a time in seconds, step:N, scope:NAME
    #[arg(long, value_name = "MOMENT", default_value = "peak", value_parser = crate::moment::parse)]
    pub(crate) at: memtrace_core::analysis::Moment,
}

#[derive(Args)]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
}

#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace explain src/train.rs:32
  cargo memtrace explain run.memtrace matmul
  cargo memtrace explain 0x7f3a94000000")]
pub(crate) struct ExplainArgs {
    /// A line (train.rs:32), a function, an operator (matmul) or an address (0x7f…), and the recording, in any order
    #[arg(required = true, num_args = 1..=2, value_name = "[FILE] SUBJECT")]
    pub(crate) what: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

#[derive(Args)]
#[command(after_help = "Rows are matched by function, operator and name: an edit that moves lines is no change.

Examples:
  cargo memtrace diff before.memtrace after.memtrace
  cargo memtrace diff before.memtrace after.memtrace --by line --md >>pull-request.md
  cargo memtrace diff run.memtrace run.memtrace --at step:2 --at-after step:9")]
pub(crate) struct DiffArgs {
    /// The recording before the change
    pub(crate) before: PathBuf,
    /// The recording after the change
    pub(crate) after: PathBuf,
    /// Tables to print. By operator, a PyTorch snapshot and a recording of candle are paired
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) by: Vec<By>,
    /// The moment of both: peak, end, a time in seconds, step:N, scope:NAME
    #[arg(long, value_name = "MOMENT", default_value = "peak", value_parser = crate::moment::parse)]
    pub(crate) at: memtrace_core::analysis::Moment,
    /// Another moment of the second recording
    #[arg(long, value_name = "MOMENT", value_parser = crate::moment::parse)]
    pub(crate) at_after: Option<memtrace_core::analysis::Moment>,
    /// Fold rows that changed less
    #[arg(long, value_name = "SIZE", default_value = "64 KiB", value_parser = crate::moment::size)]
    pub(crate) threshold: u64,
    /// Print Markdown, for a pull request
    #[arg(long, conflicts_with = "json")]
    pub(crate) md: bool,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace flamegraph                                      beside the newest recording
  cargo memtrace flamegraph run.memtrace --at step:3 -o step.svg
  cargo memtrace flamegraph run.memtrace --by module --count
  cargo memtrace flamegraph before.memtrace --diff after.memtrace    red: more than before")]
pub(crate) struct FlamegraphArgs {
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
    /// The moment: peak, end, a time in seconds, step:N, scope:NAME
    #[arg(long, value_name = "MOMENT", default_value = "peak", value_parser = crate::moment::parse)]
    pub(crate) at: memtrace_core::analysis::Moment,
    /// What stands outermost: stacks alone, or scopes or modules above them
    #[arg(long, value_name = "KEY", default_value = "stack")]
    pub(crate) by: FrameKey,
    /// Count blocks, not bytes
    #[arg(long)]
    pub(crate) count: bool,
    /// Draw this recording, coloured by its difference from FILE: red is more, blue is less
    #[arg(long, value_name = "OTHER")]
    pub(crate) diff: Option<PathBuf>,
    /// The SVG file, or - for the standard output [default: beside FILE]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace timeline                        the total, in the terminal
  cargo memtrace timeline --by operator          a row for each of the largest operators
  cargo memtrace timeline --by line -o lines.svg")]
pub(crate) struct TimelineArgs {
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
    /// A row or an area for each of the largest; the terminal shows only the total by default, SVG categories
    #[arg(long, value_name = "KEY")]
    pub(crate) by: Option<OverTime>,
    /// Write an SVG file, or - for the standard output, in place of a picture in the terminal
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = "The page is one file. It needs no network and no memtrace: send it to whom you like.

Examples:
  cargo memtrace view
  cargo memtrace view run.memtrace -o report.html --no-open
  cargo memtrace view before.memtrace after.memtrace      what changed, too
  cargo memtrace view snapshot.pickle                     a snapshot of PyTorch")]
pub(crate) struct ViewArgs {
    /// The recording [default: the newest one under cargo's target folder]; of two the older one
    pub(crate) file: Option<PathBuf>,
    /// The recording after a change
    pub(crate) other: Option<PathBuf>,
    /// The HTML file, or - for the standard output [default: beside FILE]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Open the page in a browser, also if this is no terminal
    #[arg(long)]
    pub(crate) open: bool,
    /// Do not open the page
    #[arg(long, conflicts_with = "open")]
    pub(crate) no_open: bool,
    /// Largest size of the page; beyond it, small blocks are left out
    #[arg(long, value_name = "SIZE", default_value = "32 MiB", value_parser = crate::moment::size)]
    pub(crate) max_size: u64,
    /// Embed the source text around your own lines; anyone with the page can read it
    #[arg(long)]
    pub(crate) sources: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace export run.memtrace --to pytorch -o snapshot.pickle    for pytorch.org/memory_viz
  cargo memtrace export --to chrome -o run.trace.json.gz                for ui.perfetto.dev
  cargo memtrace export --to pprof -o peak.pb.gz                        for go tool pprof
  cargo memtrace export --to parquet -o runs --label commit=1a2b3c4     for DuckDB, beside other runs")]
pub(crate) struct ExportArgs {
    /// The recording [default: the newest one under cargo's target folder]
    pub(crate) file: Option<PathBuf>,
    /// The format
    #[arg(long, value_name = "FORMAT", value_parser = crate::commands::export::formats())]
    pub(crate) to: String,
    /// The file, compressed if it ends in .gz, or - for the standard output; of tables the folder of all runs
    /// [default: beside FILE]
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// What the tables say of the run, such as its commit; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Largest size of the file, before compression, for pytorch, chrome, layout, folded and json; beyond it, small blocks or
    /// rows are left out [default: 32 MiB of json, 128 MiB of chrome and layout]
    #[arg(long, value_name = "SIZE", value_parser = crate::moment::size)]
    pub(crate) max_size: Option<u64>,
}

#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace check --peak 6GiB
  cargo memtrace check new.memtrace --baseline old.memtrace --tolerance 1%
  cargo memtrace check --no-leak

--no-leak judges each scope that ran repeatedly as `assert_no_leak!` judges code: caches that fill up and what is allocated once
are no leak. It needs scopes that run 5 times, or 12 times if memory grows, and a whole log.")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
    /// The largest peak that is allowed
    #[arg(long, value_name = "SIZE", value_parser = crate::moment::size)]
    pub(crate) peak: Option<u64>,
    /// The peak of this recording is the largest that is allowed
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// How far the peak may be over the baseline, in per cent
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = crate::moment::percent)]
    pub(crate) tolerance: f64,
    /// No scope may leave more memory behind the more often it runs; undecided (exit code 3) if the recording does not tell
    #[arg(long)]
    pub(crate) no_leak: bool,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[derive(Args)]
#[command(after_help = "A test whose peak differs from its baseline leaves the new peak below cargo's target folder.
Review what changed, line by line, and accept it:

  cargo test                              a peak is over its baseline
  cargo memtrace baselines review         shows the change, and asks
  git diff                                the accepted baselines, to be committed

Where there is no terminal, `review` lists the changes and ends with 1 if there are any.")]
pub(crate) struct BaselinesArgs {
    #[command(subcommand)]
    pub(crate) action: BaselinesAction,
}

#[derive(Subcommand)]
pub(crate) enum BaselinesAction {
    /// Show each changed peak by line, and ask whether to accept it
    Review {
        /// Accept all of them
        #[arg(long)]
        accept: bool,
        /// Only these baseline files, or those in these folders
        paths: Vec<PathBuf>,
    },
    /// Accept all changed peaks
    Update {
        /// Only these baseline files, or those in these folders
        paths: Vec<PathBuf>,
    },
    /// Remove baselines that no test has any more
    #[command(
        after_help = "Runs the whole of `cargo test`, with the arguments after `--`. A baseline is removed if the run passed, used other
baselines of that file for that device but not this one, and if the source file beside it no longer has its name.
So the baselines of ignored tests, of other features and of GPUs that are not there stay.

Examples:
  cargo memtrace baselines prune
  cargo memtrace baselines prune --accept -- --workspace"
    )]
    Prune {
        /// Remove them without a question
        #[arg(long)]
        accept: bool,
        /// Only these baseline files, or those in these folders
        paths: Vec<PathBuf>,
        /// Arguments of `cargo test`
        #[arg(last = true)]
        args: Vec<std::ffi::OsString>,
    },
}

/// What a table is by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    Line,
    Function,
    Operator,
    Module,
    Category,
    Scope,
    Parameter,
    Name,
    Age,
    Thread,
    Stream,
    Crate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverTime {
    Category,
    Operator,
    Line,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FrameKey {
    Stack,
    Scope,
    Module,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    Auto,
    Always,
    Never,
}
