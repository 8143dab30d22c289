//! Trial of the packaged crates: a user's steps from an empty folder, without this repository and without a network.
//! docs/tool.md is its transcript.

mod source;
mod user;

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use memtrace_runner::kit::host;

pub(crate) use self::source::{PUBLISHED, make as packaged_source};
use self::user::User;
use crate::lane::Run;

/// The folder for the trial. It is kept, with what cargo built there. Default: a temporary folder.
const FOLDER: &str = "MEMTRACE_TRIAL_FOLDER";
/// With this variable, a trial that passed writes docs/tool.md.
const UPDATE: &str = "MEMTRACE_UPDATE_DOCS";

pub(crate) fn run(run: &Run) -> Result<String> {
    let home = home(run)?;
    source::make(run, &home.join("vendor"), &home.join(".cargo"))?;
    let mut user = User::new(&home, &run.root.join("xtask/packaged"));
    install(&mut user)?;
    unchanged(&mut user)?;
    record(&mut user)?;
    read(&mut user)?;
    compare(&mut user)?;
    simulate(&mut user)?;
    help(&mut user)?;
    let result = user.checks.end()?;
    if std::env::var_os(UPDATE).is_some() {
        run.shell.write_file(run.root.join("docs/tool.md"), user.transcript)?;
    }
    Ok(result)
}

/// The user's home folder, without files of an earlier trial. What cargo built stays.
fn home(run: &Run) -> Result<PathBuf> {
    let shell = &run.shell;
    let home = match std::env::var_os(FOLDER) {
        Some(folder) => std::path::absolute(folder)?,
        None => run.scratch("packaged")?,
    };
    let package = home.join("digits");
    let old = ["Cargo.lock", "src", "tests", "snapshot.pickle", "target/memtrace", "target/simulated-gpu/memtrace"];
    old.iter().try_for_each(|name| shell.remove_path(package.join(name)))?;
    shell.remove_path(home.join(".cargo"))?;
    let cache = shell.create_dir(home.join(".cache/memtrace"))?;
    for path in shell.read_dir(&cache)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.contains("target") {
            shell.remove_path(path)?;
        }
    }
    shell.create_dir(&package)?;
    // Cargo treats packages of the same name and version as the same package.
    let host = host(&mut Command::new("rustc"))?;
    let kit = shell.read_dir(cache.join("kit-target")).unwrap_or_default();
    let kit = kit.iter().flat_map(|target| [target.clone(), target.join(&host)]);
    for target in [package.join("target"), package.join("target/simulated-gpu")].into_iter().chain(kit) {
        for profile in ["debug", "release"] {
            let built = target.join(profile).join(".fingerprint");
            let names = if built.exists() { shell.read_dir(&built)? } else { Vec::new() };
            names
                .iter()
                .filter(|path| path.display().to_string().contains("memtrace-"))
                .try_for_each(|path| shell.remove_path(path))?;
        }
    }
    Ok(home)
}

fn install(user: &mut User) -> Result<()> {
    user.write(
        "# `cargo memtrace`, command by command\n\n\
         Every command below ran in one go, in an empty folder, with the packaged crates only: no clone of the repository, no \
         GPU, no network. `MEMTRACE_UPDATE_DOCS=1 cargo xtask packaged` runs them again, checks what they print and writes this \
         page. Cargo's progress is left out; `~` is the home folder of the trial. The programs were built with `opt-level = 0`, to save time.\n\n\
         ## Install",
    );
    if std::env::var_os(FOLDER).is_some() {
        user.write(
            "In this run the folder was kept from a trial before, so cargo had built the tool and its kit already.",
        );
    }
    user.run("cargo install --locked cargo-memtrace", 0, &["Installing ~/.cargo/bin/cargo-memtrace"])?;
    user.write("The program, a package with candle as its only dependency:");
    for file in ["Cargo.toml", "src/lib.rs", "src/main.rs"] {
        user.add(file)?;
    }
    user.run("cargo memtrace doctor", 0, &["cargo: cargo 1.", "NVIDIA driver: ", "simulated GPU: "])
}

fn unchanged(user: &mut User) -> Result<()> {
    user.write("## A program as it is\n\nThe preload library, which records the heap and the CUDA memory of any program, is built on first use.");
    let expected = [
        "8 batches",
        "MiB on cpu after",
        "The line that held most: src/",
        "recorded to target/memtrace/digits-1.memtrace",
    ];
    user.run("cargo memtrace run --release", 0, &expected)
}

fn record(user: &mut User) -> Result<()> {
    user.write("## With memtrace in the program\n\nIt can name scopes then, and write files itself.");
    user.edit("Cargo.toml", "[dependencies]\n", "[dependencies]\ncandle-memtrace = \"0.1\"\n")?;
    user.edit(
        "src/lib.rs",
        "use candle_core::{Device, Result, Tensor};\n",
        "use candle_core::{Device, Result, Tensor};\n\n#[global_allocator]\nstatic ALLOC: memtrace::Alloc = memtrace::Alloc::system();\n",
    )?;
    let expected = [
        "8 batches",
        "MiB on cpu after",
        "recorded to target/memtrace/digits-2.memtrace",
        "next: cargo memtrace report",
    ];
    user.run("cargo memtrace run --release", 0, &expected)
}

fn read(user: &mut User) -> Result<()> {
    user.write("## Read");
    user.run("cargo memtrace report --top 5", 0, &["At the peak, by line", "src/lib.rs:", "Resident memory"])?;
    user.run("cargo memtrace report --by line,operator --top 3 --json | head -n 40", 0, &["src/lib.rs:"])?;
    user.run("cargo memtrace explain lib.rs:22", 0, &["src/lib.rs:22"])?;
    user.run("cargo memtrace leaks --top 3", 0, &["cpu"])?;
    user.run("cargo memtrace temporaries --top 3", 0, &[])?;
    user.run("cargo memtrace advise", 0, &["cpu"])?;
    user.run("cargo memtrace timeline", 0, &["cpu"])?;
    user.run("cargo memtrace flamegraph", 0, &["digits-2.svg"])?;
    user.run("cargo memtrace view --no-open", 0, &["digits-2.html"])?;
    user.run("cargo memtrace export --to pytorch -o snapshot.pickle", 0, &["wrote snapshot.pickle"])?;
    user.run("cargo memtrace doctor target/release/digits", 0, &["heap: recorded", "lines: yes"])
}

fn compare(user: &mut User) -> Result<()> {
    user.write("## Compare and check\n\nThe program keeps the outputs of all batches; their sums are enough.");
    user.edit(
        "src/main.rs",
        "outputs.push(model.forward(&batch)?);",
        "outputs.push(model.forward(&batch)?.sum_all()?);",
    )?;
    user.run("cargo memtrace run --release", 0, &["recorded to target/memtrace/digits-3.memtrace"])?;
    user.run(
        "cargo memtrace diff target/memtrace/digits-2.memtrace target/memtrace/digits-3.memtrace",
        0,
        &["src/lib.rs:"],
    )?;
    user.run("cargo memtrace check --baseline target/memtrace/digits-2.memtrace", 0, &["ok: the peak of "])?;
    user.run("cargo memtrace check --peak 1MiB", 1, &["is over the limit of 1.000 MiB by"])?;
    user.write(
        "Of a distributed job `report`, `check` and `diff` take the folder of all ranks, and so do `explain`, `view` and `export`: \
         [ranks.md](ranks.md).",
    );
    Ok(())
}

fn simulate(user: &mut User) -> Result<()> {
    user.write(
        "## Without a GPU\n\nCandle's feature `cuda` builds with a stand-in for the CUDA toolkit, and the program runs on a simulated \
         GPU: its memory is right to the byte, its results are zeros ([testing-gpu.md](testing-gpu.md)). The simulated GPU is built \
         on first use.",
    );
    let expected = ["8 batches", "on cuda:0", "recorded to target/memtrace/digits-4.memtrace"];
    user.run("cargo memtrace run --features cuda --simulate 24GiB", 0, &expected)?;
    user.run("cargo memtrace report --top 5", 0, &["a simulated GPU", "src/lib.rs:"])?;
    user.write(
        "`fit` finds out whether the program fits on a card, and with how many images. For this, the program reads the number of \
         images from a variable. With `--unified`, a size in `--gpus` is the memory of a host whose GPU uses the host's memory \
         ([fit.md](fit.md#where-the-gpus-memory-is-the-hosts)).",
    );
    user.edit(
        "src/main.rs",
        "digits::images(1024, &device)?",
        "digits::images(std::env::var(\"IMAGES\").map_or(1024, |count| count.parse().unwrap()), &device)?",
    )?;
    user.run(
        "cargo memtrace fit --gpus RTX-4090,T4 --features cuda --vary IMAGES=1024..8388608",
        0,
        &[
            "RTX 4090 (23.52 GiB for CUDA): fits",
            "T4 (14.56 GiB for CUDA): fits",
            "; largest IMAGES: ",
            "= needed of 14.56 GiB",
        ],
    )?;
    user.write("A test of memory:");
    user.add("tests/memory.rs")?;
    user.run(
        "cargo memtrace test --simulate 24GiB -- --features cuda --test memory",
        0,
        &["test result: ok. 1 passed", "simulated GPU of 24"],
    )
}

fn help(user: &mut User) -> Result<()> {
    user.write("## Help");
    user.run("cargo memtrace --help", 0, &["Examples:"])?;
    user.run("cargo memtrace reprot", 2, &["report"])
}
