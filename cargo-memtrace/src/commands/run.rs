//! `run`: builds a program, runs it, records it, and says what held the memory.

mod preload;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use memtrace_core::Bytes;
use memtrace_core::export::Format;

use super::conclusion;
use crate::arguments::CargoArgs;
use crate::elf::{ProgramFile, is_sanitizer};
use crate::failure::CommandFailure;
use crate::kit::{self, PreloadLibrary};
use crate::recordings::ReservedName;
use crate::resident::{ResidentMemory, ResidentSampler};
use crate::{build, called, cargo_runner, moment, output, signals};

/// Build, run and record a program
#[derive(Args, Default)]
#[command(
    after_help = "Builds as `cargo build` does, with line tables for this build only. Signals go to the program; its exit code is the command's.

Any program is recorded as it is: a preloaded library records its heap (C's malloc, which Rust's default allocator calls) and its
CUDA memory. The heap of a program with an allocator of its own, or without dynamic linking, is not seen; `run` says so. A program
with memtrace in it records itself, with scopes and names, from before `main`.

Examples:
  cargo memtrace run --release
  cargo memtrace run --release --example train -- --epochs 1
  cargo memtrace run --release --features cuda --simulate 24GiB
  cargo memtrace run --exec ./server -- --port 8080"
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) cargo: CargoArgs,
    /// Run on a simulated GPU with this memory; for several GPUs, one size each, separated by commas
    #[arg(long, value_name = "MEM[,MEM…]")]
    pub(crate) simulate: Option<String>,
    /// Record blocks of at least this size; smaller ones are only counted
    #[arg(long, value_name = "SIZE", value_parser = moment::size)]
    pub(crate) min_size: Option<u64>,
    /// Sample smaller blocks: one sample point every SIZE bytes on average
    #[arg(long, value_name = "SIZE", value_parser = moment::size)]
    pub(crate) sample_interval: Option<u64>,
    /// Record which kernel, copy or fill uses each GPU block first and last
    #[arg(long)]
    pub(crate) uses: bool,
    /// Record the processes that the program starts, too, and keep those that held at least SIZE [default: 1 MiB]
    #[arg(long, value_name = "SIZE", value_parser = moment::size, num_args = 0..=1, require_equals = true, default_missing_value = "1MiB")]
    pub(crate) children: Option<u64>,
    /// Where the recording goes [default: target/memtrace/PROGRAM-N.memtrace]
    #[arg(long, short, visible_alias = "output", value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Keep at most N recordings of the program in the default folder, the newest ones
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) keep: usize,
    /// Run this program, and build nothing
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) exec: Option<PathBuf>,
    /// Arguments of the program
    #[arg(last = true)]
    pub(crate) args: Vec<OsString>,
    /// Further variables of the program
    #[arg(skip)]
    pub(crate) variables: Vec<(String, String)>,
}

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, CommandFailure> {
    Ok(signals::end_as(recorded(args)?))
}

fn recorded(args: &RunArgs) -> Result<ExitStatus, CommandFailure> {
    let mut prepared = Prepared::of(args)?;
    if is_off() {
        output::say("MEMTRACE=off: the program runs, and nothing is recorded");
        return wait(started(&mut prepared.command)?);
    }
    let reserved = match &args.out {
        Some(path) => {
            check_format(path)?;
            ReservedName::named(path)?
        }
        None => ReservedName::next(&prepared.name, args.keep)?,
    };
    not_used("MEMTRACE", "`run` records with the whole log");
    not_used("MEMTRACE_OUT", "`run -o FILE` names the recording");
    prepared.record_to(&reserved, args)?;
    let Prepared { name, file, mut command, .. } = prepared;
    let child = started(&mut command)?;
    let pid = child.id();
    let sampler = ResidentSampler::of(pid);
    let status = wait(child)?;
    let memory = sampler.stop();
    if let Some(signal) = status.signal() {
        output::say(format!("{name} was ended by signal {signal}"));
    }
    let announced = reserved.announced(pid);
    if announced.is_empty() {
        nothing_recorded(&name, &file, &memory);
    }
    conclusion::conclude(&announced, pid, args.children, args.out.is_none());
    if args.children.is_none() && memory.is_mostly_a_childs() {
        let (child, held, own) = (&memory.child, Bytes(memory.of_child), Bytes(memory.most));
        output::say(format!(
            "{child}, which {name} started, held {held} of physical memory, {name} itself {own}; \
             `{} run --children` records it, too",
            called::name()
        ));
    }
    Ok(status)
}

/// Where the program's output goes if the standard output is needed for a verdict.
#[derive(Clone, Copy)]
pub(super) enum Output {
    OnStandardError,
    Hidden,
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Well,
    WithFailure,
    /// The program did not end in time, and was killed.
    ByLimit,
}

/// Builds, runs and records a program, and prints nothing about the recording. Without a limit it may run forever.
pub(super) fn record(
    args: &RunArgs,
    file: &Path,
    output: Output,
    limit: Option<Duration>,
) -> Result<Ended, CommandFailure> {
    let mut prepared = Prepared::of(args)?;
    let reserved = ReservedName::named(file)?;
    prepared.record_to(&reserved, args)?;
    match output {
        Output::OnStandardError => prepared.command.stdout(io::stderr()),
        Output::Hidden => prepared.command.stdout(Stdio::null()).stderr(Stdio::null()),
    };
    let child = started(&mut prepared.command)?;
    let status = match limit {
        Some(limit) => wait_at_most(child, limit)?,
        None => Some(wait(child)?),
    };
    Ok(match status {
        Some(status) if status.success() => Ended::Well,
        Some(_) => Ended::WithFailure,
        None => Ended::ByLimit,
    })
}

/// A built program, and how to start it.
struct Prepared {
    name: String,
    file: ProgramFile,
    command: Command,
    preload_library: PreloadLibrary,
}

impl Prepared {
    fn of(args: &RunArgs) -> Result<Self, CommandFailure> {
        let mut environment = Vec::new();
        if let Some(memory) = &args.simulate {
            environment = kit::simulated_gpu(memory, args.exec.is_none())?;
        }
        let (name, program, library) = match &args.exec {
            Some(program) => (name_of(program), program.clone(), PreloadLibrary::default()),
            None => {
                let is_needed = !is_off() && !build::depends_on(&args.cargo, "candle-memtrace");
                let library = if is_needed { PreloadLibrary::begin() } else { PreloadLibrary::default() };
                let built = build::program(&args.cargo, &environment)?;
                (built.name, built.path, library)
            }
        };
        if args.exec.is_none()
            && let Some(runner) = cargo_runner::configured()
        {
            output::say(format!("the runner in {runner} is not used: `run` starts the program itself"));
        }
        let mut command = Command::new(&program);
        // A benchmark gets the argument that `cargo bench` passes.
        command.args(args.cargo.bench.as_ref().filter(|_| args.exec.is_none()).map(|_| "--bench"));
        command.args(&args.args).envs(environment).envs(args.variables.iter().cloned());
        Ok(Self { name, file: ProgramFile::or_script(&program), command, preload_library: library })
    }

    fn record_to(&mut self, reserved: &ReservedName, args: &RunArgs) -> Result<(), CommandFailure> {
        let command = &mut self.command;
        let library = std::mem::take(&mut self.preload_library);
        command
            .env("MEMTRACE", "1")
            .env("MEMTRACE_RUN", args.children.map_or_else(|| std::process::id().to_string(), |_| "all".into()))
            .env("MEMTRACE_OUT", pattern(reserved, args))
            .env("MEMTRACE_RECORDINGS", reserved.list());
        settings(command, args);
        if self.file.has_memtrace {
            command.env("MEMTRACE_AUTOSTART", "1");
            return Ok(());
        }
        let has_sanitizer = self.file.linked_allocator.as_deref().is_some_and(is_sanitizer);
        let is_preloaded = self.file.is_dynamic && !has_sanitizer && !preload::others_have_a_sanitizer();
        if is_preloaded {
            preload::preload(command, &library.file()?);
        }
        // If the program is linked to a library that replaces C's allocator, the preload library reports that itself.
        let is_said = is_preloaded && self.file.linked_allocator.is_some();
        if let Some(why) = self.file.hides_its_heap().filter(|_| !is_said) {
            output::say(format!("the heap of {} cannot be recorded from outside: {why}", self.name));
        }
        Ok(())
    }
}

fn started(command: &mut Command) -> Result<Child, CommandFailure> {
    command.spawn().map_err(|error| {
        let program = Path::new(command.get_program());
        CommandFailure::usage(format!("cannot run {}: {error}", program.display()))
    })
}

/// Whether the user has turned recording off with `MEMTRACE`, which has this effect in every program.
fn is_off() -> bool {
    std::env::var("MEMTRACE").is_ok_and(|value| ["off", "0", "false"].contains(&&*value.trim().to_lowercase()))
}

/// Says that `run` does not use a variable, if the variable's value is more than a request to record.
fn not_used(name: &str, instead: &str) {
    let Some(value) = std::env::var_os(name) else { return };
    if !["", "1", "true", "on", "all"].contains(&value.to_string_lossy().trim()) {
        output::say(format!("{name}={} is not used: {instead}", value.display()));
    }
}

/// Checks the format of the output now, because the program would refuse a wrong one only when it runs.
fn check_format(path: &Path) -> Result<(), CommandFailure> {
    let text = path.to_str().ok_or_else(|| CommandFailure::usage(format!("{} is not UTF-8 text", path.display())))?;
    Format::of(Path::new(text))?;
    Ok(())
}

/// The value of `MEMTRACE_OUT`. A path that the user gave may be a pattern. In a path that `run` chose, `%` is literal.
fn pattern(reserved: &ReservedName, args: &RunArgs) -> OsString {
    match (&args.out, reserved.path.to_str()) {
        (None, Some(path)) => path.replace('%', "%%").into(),
        _ => reserved.path.clone().into(),
    }
}

fn name_of(program: &Path) -> String {
    program.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn settings(command: &mut Command, args: &RunArgs) {
    let values = [("MEMTRACE_MIN_SIZE", args.min_size), ("MEMTRACE_SAMPLE_INTERVAL", args.sample_interval)];
    for (name, value) in values {
        command.envs(value.map(|value| (name, value.to_string())));
    }
    if args.uses {
        command.env("MEMTRACE_USES", "1");
    }
}

/// Waits for the program. Signals that ask this command to end go to the program, which decides whether to end.
fn wait(mut child: Child) -> Result<ExitStatus, CommandFailure> {
    let _forwarded = signals::forward_to(child.id()).map_err(|error| CommandFailure::usage(error.to_string()))?;
    child.wait().map_err(|error| CommandFailure::usage(format!("the program did not end: {error}")))
}

/// Like [`wait`], but at most for this time; then the program is killed.
fn wait_at_most(mut child: Child, limit: Duration) -> Result<Option<ExitStatus>, CommandFailure> {
    let failed = |error: io::Error| CommandFailure::usage(format!("the program did not end: {error}"));
    let _forwarded = signals::forward_to(child.id()).map_err(failed)?;
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().and_then(|()| child.wait()).map_err(failed)?;
    Ok(None)
}

/// Says why nothing was recorded, how much memory the program held according to the kernel, and which lines record the
/// heap of a Rust program.
fn nothing_recorded(name: &str, file: &ProgramFile, memory: &ResidentMemory) {
    if file.has_memtrace {
        let name = called::name();
        output::say(format!("nothing was recorded; `{name} doctor PROGRAM` says what of a program can be recorded"));
        return;
    }
    let why = file.hides_its_heap().unwrap_or_else(|| "it did not load the preloaded library".to_owned());
    let (most, files) = (Bytes(memory.most), Bytes(memory.files));
    output::tell([
        "",
        &format!("memtrace: nothing was recorded of {name}: {why}"),
        &format!("memtrace: {name} reached {most} of physical memory, and {files} of mapped files and code"),
    ]);
    if !file.is_rust {
        return;
    }
    let hint = format!("    candle-memtrace = \"{}\"", version());
    output::tell([
        "memtrace: to record its heap, add to Cargo.toml and to the program, and run again:",
        "",
        "    [dependencies]",
        &hint,
        "",
        "    #[global_allocator]",
        "    static ALLOC: memtrace::Alloc = memtrace::Alloc::system();",
    ]);
}

/// The version as a requirement, such as 0.1 for 0.1.0.
fn version() -> &'static str {
    concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"))
}
