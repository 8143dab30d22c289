//! `doctor`: what is installed, and what of a program can be recorded.

use std::path::Path;
use std::process::Command;

use object::{Object, ObjectSection};

use crate::cli::DoctorArgs;
use crate::failure::CommandFailure;
use crate::{build, elf, kit, output};

pub(crate) fn doctor(args: &DoctorArgs) -> Result<(), CommandFailure> {
    let mut lines = vec![
        tool("cargo", &build::cargo(), "--version"),
        tool("C compiler (for --simulate)", "cc".as_ref(), "--version"),
    ];
    lines.push(driver());
    lines.push(format!("cache: {}", kit::cache().display()));
    if let Some(program) = &args.program {
        lines.push(String::new());
        lines.extend(of_program(program)?);
    }
    output::print_text(&(lines.join("\n") + "\n"))
}

fn tool(name: &str, program: &std::ffi::OsStr, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output().ok().filter(|output| output.status.success());
    let version = output.and_then(|output| String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned));
    format!("{name}: {}", version.unwrap_or_else(|| "missing".to_owned()))
}

fn driver() -> String {
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    let line = version.as_deref().and_then(|text| text.lines().next());
    line.map_or_else(
        || "NVIDIA driver: none on this machine; `--simulate 24GiB` runs on a simulated GPU".to_owned(),
        |line| format!("NVIDIA driver: {line}"),
    )
}

fn of_program(program: &Path) -> Result<Vec<String>, CommandFailure> {
    let failed = |why: String| CommandFailure::usage(format!("cannot read {}: {why}", program.display()));
    let bytes = std::fs::read(program).map_err(|error| failed(error.to_string()))?;
    let file = object::File::parse(&*bytes).map_err(|error| failed(format!("it is no ELF program ({error})")))?;
    let has = |section: &str| file.section_by_name(section).is_some_and(|section| section.size() > 0);
    let is_dynamic = has(".dynamic");
    let heap = match elf::has_memtrace(program) {
        true => "heap: recorded, if memtrace's allocator is its global allocator".to_owned(),
        false => "heap: not recorded: the program does not contain memtrace; add candle-memtrace and its allocator"
            .to_owned(),
    };
    let cuda = match is_dynamic {
        true => "CUDA memory: recorded, by the program itself or through the preload library",
        false => "CUDA memory: not recorded: the program is linked statically, so nothing can be preloaded",
    };
    let lines = match (has(".debug_line"), file.symbols().next().is_some()) {
        (true, _) => "lines: yes",
        (false, true) => "lines: functions only; build with debug = \"line-tables-only\"",
        (false, false) => {
            "lines: none, the program is stripped; build with strip = \"none\" and debug = \"line-tables-only\""
        }
    };
    Ok(vec![format!("program: {}", program.display()), heap, cuda.to_owned(), lines.to_owned()])
}
