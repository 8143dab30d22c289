//! `run`: builds a program, runs it, records it, and says what held the memory.

use std::fs::File;
use std::io::BufWriter;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};

use memtrace_core::Bytes;
use memtrace_core::export::{Capture, Export, Text};
use memtrace_core::report::{Report, ReportOptions};
use memtrace_core::snapshot::SnapshotData;

use crate::cli::RunArgs;
use crate::failure::CommandFailure;
use crate::resident::{ResidentMemory, ResidentSampler};
use crate::{build, elf, input, kit, recordings, signals};

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, CommandFailure> {
    let mut environment = Vec::new();
    if let Some(memory) = &args.simulate {
        environment = kit::simulated_gpu(memory)?;
    }
    let (name, program) = match &args.exec {
        Some(program) => (name_of(program), program.clone()),
        None => {
            let built = build::program(&args.cargo, &environment)?;
            (built.name, built.path)
        }
    };
    let out = match &args.out {
        Some(path) if path.exists() => {
            return Err(CommandFailure::usage(format!("{} exists; give another name, or remove it", path.display())));
        }
        Some(path) => path.clone(),
        None => recordings::next(&name, args.keep)?,
    };
    let mut command = Command::new(&program);
    command.args(&args.args).envs(environment).env("MEMTRACE_OUT", &out).env("MEMTRACE", "1");
    settings(&mut command, args);
    let has_memtrace = elf::has_memtrace(&program);
    if has_memtrace {
        command.env("MEMTRACE_AUTOSTART", "1");
    } else {
        command.env("LD_PRELOAD", preloaded(&kit::preload_library()?));
    }
    let child =
        command.spawn().map_err(|error| CommandFailure::usage(format!("cannot run {}: {error}", program.display())))?;
    let sampler = ResidentSampler::of(child.id());
    let status = wait(child)?;
    let memory = sampler.stop();
    if let Some(signal) = status.signal() {
        eprintln!("memtrace: {name} was ended by signal {signal}; what was recorded until then is kept");
    }
    if !out.exists() {
        nothing_recorded(&name, has_memtrace, memory);
    } else if let Err(failure) = summary(&out) {
        eprintln!("memtrace: {failure}");
    }
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
    if args.uses {
        command.env("MEMTRACE_USES", "1");
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
fn summary(out: &Path) -> Result<(), CommandFailure> {
    let recording = input::read(Some(out))?;
    if out.extension().is_some_and(|extension| extension == "memtrace") {
        keep_names(out, &recording.data)?;
    }
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
    Ok(())
}

/// Writes the capture again with the names of functions: the next build replaces the program that has them.
fn keep_names(out: &Path, data: &SnapshotData) -> Result<(), CommandFailure> {
    let failed = |error: std::io::Error| {
        CommandFailure::usage(format!(
            "cannot write {}: {error}; it stays without the names of functions",
            out.display()
        ))
    };
    let mut new = out.as_os_str().to_owned();
    new.push(".new");
    let mut file = BufWriter::new(File::create(&new).map_err(failed)?);
    Capture::default().write(data, &mut file)?;
    file.into_inner().map_err(|error| failed(error.into_error()))?;
    std::fs::rename(&new, out).map_err(failed)
}

/// Why, what the kernel knows instead, and the lines that record the heap.
fn nothing_recorded(name: &str, has_memtrace: bool, memory: ResidentMemory) {
    if has_memtrace {
        eprintln!(
            "memtrace: nothing was recorded; `cargo memtrace doctor PROGRAM` says what of a program can be recorded"
        );
        return;
    }
    let (most, files) = (Bytes(memory.most), Bytes(memory.files));
    eprintln!(
        "
memtrace: nothing was recorded: {name} used no CUDA memory, and its heap is seen only with memtrace's allocator in it
memtrace: {name} held at most {most} of physical memory; mapped files and code were at most {files} of it
memtrace: to record its heap, add to Cargo.toml and to the program, and run again:

    [dependencies]
    candle-memtrace = \"{version}\"

    #[global_allocator]
    static ALLOC: memtrace::Alloc = memtrace::Alloc::system();",
        version = version(),
    );
}

/// The version as a requirement: 0.1 for 0.1.0.
fn version() -> &'static str {
    concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_with_names_takes_the_place_of_the_one_without() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a-1.memtrace");
        std::fs::write(&out, "streamed").unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/everything.memtrace");
        let data = memtrace_core::read_capture(golden, |_, _| {}).unwrap();
        keep_names(&out, &data).unwrap();
        assert_eq!(memtrace_core::read_capture(&out, |_, _| {}).unwrap(), data);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
    }
}
