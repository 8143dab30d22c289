//! The archive: the tool with the preload library and the simulated driver. A user needs neither Rust nor a compiler.

use std::path::Path;

use anyhow::{Context, Error, Result};
use memtrace_runner::kit::{KitPart, PRELOAD_LIBRARY, SIMULATED_DRIVER};
use xshell::cmd;

use super::files::ReleaseFolder;
use super::licences;
use crate::lane::Run;
use crate::machine::Machine;

/// Parts of the kit in the archive.
const PARTS: [&KitPart; 2] = [&PRELOAD_LIBRARY, &SIMULATED_DRIVER];

pub(super) fn make(run: &Run, release: &ReleaseFolder, machine: Machine, wheel: &Path) -> Result<()> {
    let shell = &run.shell;
    let (scratch, name) = (run.scratch("archive")?, release.archive_name(machine.target));
    let content = shell.create_dir(scratch.join(&name))?;
    tool(run, wheel, &content)?;
    kit(run, machine, &content.join("lib/memtrace"), &release.version)?;
    for file in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        shell.copy_file(run.root.join(file), content.join(file))?;
    }
    shell.write_file(content.join("THIRD-PARTY.txt"), licences::linked(run, machine.target)?)?;
    let archive = release.archive(machine.target);
    // Sorted, and without times and owners, so that the same files give the same archive.
    let same = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"];
    cmd!(shell, "tar --create --gzip {same...} --file {archive} --directory {scratch} {name}").run()?;
    Ok(())
}

/// The program from the wheel, which states the oldest glibc that it runs with. Its file is called `cargo-memtrace`,
/// because cargo and `cargo binstall` look for this name. A link is called `memtrace`.
fn tool(run: &Run, wheel: &Path, content: &Path) -> Result<()> {
    let shell = &run.shell;
    let (programs, unpacked) = (shell.create_dir(content.join("bin"))?, content.with_extension("wheel"));
    cmd!(shell, "python3 -m zipfile --extract {wheel} {unpacked}").quiet().run()?;
    let mut found = shell.read_dir(&unpacked)?.into_iter().map(|folder| folder.join("scripts/memtrace"));
    let found = found.find(|path| path.exists()).context("the wheel has no program")?;
    let program = programs.join("cargo-memtrace");
    shell.copy_file(found, &program)?;
    // The wheel's format does not keep a file's mode.
    cmd!(shell, "chmod 755 {program}").quiet().run()?;
    Ok(std::os::unix::fs::symlink("cargo-memtrace", programs.join("memtrace"))?)
}

/// Adds the kit's parts where the tool looks for them, and the version that the tool compares.
fn kit(run: &Run, machine: Machine, folder: &Path, version: &str) -> Result<()> {
    let (shell, sources) = (&run.shell, machine.kit(run)?);
    shell.create_dir(folder)?;
    shell.write_file(folder.join("VERSION"), format!("{version}\n"))?;
    for part in PARTS {
        let (built, here) = (sources.folder(part).map_err(Error::msg)?, folder.join(part.folder_name()));
        cmd!(shell, "cp --recursive --no-dereference {built} {here}").quiet().run()?;
    }
    // The library is built with line tables, which are most of its size.
    let library = folder.join(PRELOAD_LIBRARY.folder_name()).join(PRELOAD_LIBRARY.file_name());
    let strip = machine.strip;
    Ok(cmd!(shell, "{strip} --strip-unneeded {library}").quiet().run()?)
}
