//! `doctor`: what is installed, and which parts of a program can be recorded.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;
use memtrace_runner::kit::{GPU_CHECK, cache, cargo};

use crate::elf::ProgramFile;
use crate::failure::CommandFailure;
use crate::{kit, output};

/// Print what is installed, and what of a program can be recorded
#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace doctor                         is everything there that the commands need?
  cargo memtrace doctor target/release/train    what of this program can be recorded, and why not the rest
  cargo memtrace doctor --gpu                   does this machine's GPU behave as memtrace expects?")]
pub(crate) struct DoctorArgs {
    /// A program's file
    program: Option<PathBuf>,
    /// Check on the first GPU of this machine what memtrace expects of NVIDIA's driver: takes seconds, and 300 MiB
    #[arg(long, conflicts_with = "program")]
    gpu: bool,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode, CommandFailure> {
    if args.gpu {
        return check_gpu();
    }
    let lines = match &args.program {
        Some(program) => of_program(program)?,
        None => of_machine(),
    };
    output::print_lines(lines)?;
    Ok(ExitCode::SUCCESS)
}

/// The exit code is that of the check: 0 if all is as expected, 1 if something is not as expected, 2 if there is no
/// GPU.
fn check_gpu() -> Result<ExitCode, CommandFailure> {
    let program = kit::file(&GPU_CHECK)?;
    let status = Command::new(&program).status();
    let status = status.map_err(|error| CommandFailure::usage(format!("cannot run {}: {error}", program.display())))?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2)))
}

fn of_machine() -> Vec<String> {
    let mut lines = vec![
        format!("cargo-memtrace: {}", env!("CARGO_PKG_VERSION")),
        format!("platform: {} {}: {}", env::consts::ARCH, env::consts::OS, recorded_here()),
        tool("cargo", &cargo(), "needed by `run` and `test`"),
        tool("C compiler", "cc".as_ref(), "needed by `--simulate`; on Debian and Ubuntu: apt-get install gcc"),
        tool("cargo-nextest", "cargo-nextest".as_ref(), "needed by `test -- nextest run` only"),
        driver(),
    ];
    let cache = cache().map_or_else(|error| error, |cache| cache.display().to_string());
    lines.push(format!("cache: {cache}"));
    lines.extend(kit::parts().map(|(name, state)| format!("{name}: {state}")));
    lines
}

/// Which parts of a program this platform records, and how far that was tested.
fn recorded_here() -> &'static str {
    let (has_glibc, is_x86) = (cfg!(all(target_os = "linux", target_env = "gnu")), cfg!(target_arch = "x86_64"));
    match (has_glibc, is_x86, cfg!(target_arch = "aarch64")) {
        (true, true, _) => "the heap and CUDA memory are recorded",
        (true, _, true) => "the heap and CUDA memory are recorded; tested in an emulator only",
        _ => "only the heap is recorded; CUDA memory needs Linux with glibc on x86-64 or aarch64",
    }
}

fn tool(name: &str, program: &OsStr, need: &str) -> String {
    let output = Command::new(program).arg("--version").output().ok().filter(|output| output.status.success());
    let version = output.and_then(|output| String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned));
    format!("{name}: {}", version.unwrap_or_else(|| format!("missing; {need}")))
}

fn driver() -> String {
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    let line = version.as_deref().and_then(|text| text.lines().next());
    line.map_or_else(
        || "NVIDIA driver: none here; `--simulate 24GiB` runs programs on a simulated GPU".to_owned(),
        |line| format!("NVIDIA driver: {line}"),
    )
}

fn of_program(program: &Path) -> Result<Vec<String>, CommandFailure> {
    let file = ProgramFile::read(program)?;
    let heap = match (file.has_memtrace, file.hides_its_heap()) {
        (true, _) => "heap: recorded, if memtrace's allocator is the program's global allocator".to_owned(),
        (false, None) => "heap: recorded through the preload library".to_owned(),
        (false, Some(why)) if file.is_rust => format!(
            "heap: not recorded: {why}; add to Cargo.toml and to the program:\n    \
             [dependencies]\n    candle-memtrace = \"0.1\"\n\n    \
             #[global_allocator]\n    static ALLOC: memtrace::Alloc = memtrace::Alloc::system();"
        ),
        (false, Some(why)) => format!("heap: not recorded: {why}"),
    };
    let mut lines = vec![format!("program: {}", program.display())];
    lines.extend(heap.lines().map(str::to_owned));
    lines.push(cuda(&file).to_owned());
    if !file.cuda_libraries.is_empty() {
        lines.push(format!("linked against: {}; it starts only where they are", file.cuda_libraries.join(", ")));
    }
    if file.is_rust {
        lines.extend(names(&file).lines().map(str::to_owned));
    }
    lines.push("physical memory: recorded, as a total of the process".to_owned());
    Ok(lines)
}

fn cuda(file: &ProgramFile) -> &'static str {
    match (file.is_dynamic, file.has_hooks, file.has_memtrace) {
        (false, ..) => {
            "CUDA memory: not recorded: the program is linked statically, so it has no driver and no preload library"
        }
        (_, false, _) => "CUDA memory: not recorded: memtrace hooks the driver on x86-64 and aarch64 only",
        (_, _, true) => "CUDA memory: recorded by the program itself",
        (_, _, false) => "CUDA memory: recorded through the preload library",
    }
}

fn names(file: &ProgramFile) -> &'static str {
    match (file.has_lines, file.has_symbols) {
        (true, _) => "lines: yes",
        (false, true) => {
            "lines: functions only; `cargo memtrace run` builds with line tables, or add to Cargo.toml:\n    \
             [profile.release]\n    debug = \"line-tables-only\""
        }
        (false, false) => {
            "lines: none, the program is stripped; add to Cargo.toml:\n    \
             [profile.release]\n    strip = \"none\"\n    debug = \"line-tables-only\""
        }
    }
}
