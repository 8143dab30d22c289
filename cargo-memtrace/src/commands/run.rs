//! `run`: builds a program, runs it, records it, and says what held the memory.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};

use memtrace_core::export::Text;
use memtrace_core::report::{Report, ReportOptions};

use crate::cli::RunArgs;
use crate::failure::CommandFailure;
use crate::{build, elf, input, kit, recordings, signals};

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, CommandFailure> {
    let mut environment = Vec::new();
    if let Some(memory) = &args.simulate {
        environment = kit::simulated_gpu(memory)?;
        // Programs with empty kernels must never be taken for programs of a real GPU.
        let target = std::path::absolute(input::target_dir().join("simulated-gpu"));
        environment.extend(target.ok().map(|target| ("CARGO_TARGET_DIR".to_owned(), target.display().to_string())));
    }
    let (name, program) = match &args.exec {
        Some(program) => (name_of(program), program.clone()),
        None => {
            let built = build::program(&args.cargo, &environment)?;
            (built.name, built.path)
        }
    };
    let out = match &args.out {
        Some(path) => path.clone(),
        None => recordings::next(&name, args.keep)?,
    };
    let mut command = Command::new(&program);
    command.args(&args.args).envs(environment).env("MEMTRACE_OUT", &out).env("MEMTRACE", "1");
    settings(&mut command, args);
    if elf::has_memtrace(&program) {
        command.env("MEMTRACE_AUTOSTART", "1");
    } else {
        command.env("LD_PRELOAD", preloaded(&kit::preload_library()?));
    }
    let child =
        command.spawn().map_err(|error| CommandFailure::usage(format!("cannot run {}: {error}", program.display())))?;
    let status = wait(child)?;
    summary(&out, &name, status);
    Ok(exit_code(status))
}

fn name_of(program: &Path) -> String {
    program.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn settings(command: &mut Command, args: &RunArgs) {
    let values = [("MEMTRACE_MIN_SIZE", args.min_size), ("MEMTRACE_SAMPLE_INTERVAL", args.sample_interval)];
    for (name, value) in values {
        command.envs(value.map(|value| (name, value.to_string())));
    }
}

/// Behind what is preloaded anyway.
fn preloaded(library: &Path) -> std::ffi::OsString {
    let mut all = std::env::var_os("LD_PRELOAD").filter(|all| !all.is_empty()).unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(library);
    all
}

/// Waits for the program. Signals that ask this command to end go to the program, which decides.
fn wait(mut child: Child) -> Result<ExitStatus, CommandFailure> {
    let _forwarded = signals::forward_to(child.id()).map_err(|error| CommandFailure::usage(error.to_string()))?;
    child.wait().map_err(|error| CommandFailure::usage(format!("the program did not end: {error}")))
}

/// As a shell: 128 and the signal's number for a program that a signal ended.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(2);
    ExitCode::from(u8::try_from(code).unwrap_or(2))
}

/// The report's answer, where the recording is, and the next command; on the standard error.
fn summary(out: &Path, name: &str, status: ExitStatus) {
    if let Some(signal) = status.signal() {
        eprintln!("memtrace: {name} was ended by signal {signal}; what was recorded until then is kept");
    }
    let Ok(recording) = input::read(Some(out)) else {
        eprintln!("memtrace: nothing was recorded; `cargo memtrace doctor` says what of a program can be recorded");
        return;
    };
    if let Ok(report) = Report::of(&recording.data, &ReportOptions::default()) {
        let answer =
            Report { title: report.title, answer: report.answer, findings: report.findings, ..Report::default() };
        eprint!("\n{}", Text { width: 100, ..Text::default() }.show(&answer));
    }
    let path: PathBuf = std::env::current_dir()
        .ok()
        .and_then(|here| Some(out.strip_prefix(here).ok()?.to_owned()))
        .unwrap_or_else(|| out.to_owned());
    eprintln!("\nmemtrace: recorded to {}\nmemtrace: next: cargo memtrace report", path.display());
}
