//! The archive from a user's view: unpacked into an empty folder, on a machine whose PATH has neither cargo nor rustc.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use super::files::ReleaseFolder;
use crate::checks::Checks;
use crate::lane::{Run, both_streams};
use crate::machine::Machine;

/// A program that allocates 64 MiB and uses it.
const PROGRAM: &str = "\
#include <stdlib.h>
#include <string.h>
char *kept;
int main(void) {
    kept = malloc(64 << 20);
    memset(kept, 1, 64 << 20);
    return kept[5] != 1;
}
";

/// A program that takes 32 MiB of the first GPU.
const GPU_PROGRAM: &str = "\
#include <dlfcn.h>
#define CALL(name, types, ...) ((int (*) types)dlsym(cuda, name)) (__VA_ARGS__)
int main(void) {
    void *cuda = dlopen(\"libcuda.so.1\", RTLD_NOW), *context;
    unsigned long long block;
    if (!cuda) return 9;
    return CALL(\"cuInit\", (unsigned), 0) || CALL(\"cuDevicePrimaryCtxRetain\", (void **, int), &context, 0)
        || CALL(\"cuCtxSetCurrent\", (void *), context)
        || CALL(\"cuMemAlloc_v2\", (unsigned long long *, unsigned long), &block, 32ul << 20);
}
";

pub(super) fn try_archive(run: &Run, release: &ReleaseFolder, machine: Machine, checks: &mut Checks) -> Result<()> {
    let folder = run.scratch(&format!("unpacked-{}", machine.target))?;
    let archive = release.archive(machine.target);
    cmd!(run.shell, "tar --extract --gzip --file {archive} --directory {folder}").quiet().run()?;
    run.shell.copy_file(run.root.join("tests/golden/everything.memtrace"), folder.join("run.memtrace"))?;
    let programs = folder.join(release.archive_name(machine.target)).join("bin");
    let mut user = User { folder, machine, path: format!("{}:/usr/bin:/bin", programs.display()), checks };
    user.has_no_rust()?;
    user.builds("program.c", PROGRAM)?;
    user.builds("gpu.c", GPU_PROGRAM)?;
    user.runs("memtrace --version", 0, &["memtrace ", &release.version])?;
    user.runs("memtrace report run.memtrace", 0, &["Peak ", "At the peak, by line"])?;
    user.runs("memtrace view run.memtrace --no-open", 0, &["wrote run.html"])?;
    user.runs("memtrace run --exec ./program", 0, &["Peak 64.0", "(main)", "next: memtrace report"])?;
    user.runs("memtrace run --simulate 24GiB --exec ./gpu", 0, &["Peak 32.0", "on cuda:0"])?;
    user.runs("memtrace doctor", 0, &["preload library: installed", "simulated GPU: installed", "cargo: missing"])?;
    run.shell.write_file(programs.join("../lib/memtrace/VERSION"), "0.0.1\n")?;
    user.runs("memtrace run --exec ./program", 2, &["is 0.0.1, this program is", "install both again"])
}

struct User<'c> {
    folder: PathBuf,
    machine: Machine,
    path: String,
    checks: &'c mut Checks,
}

impl User<'_> {
    fn has_no_rust(&mut self) -> Result<()> {
        for program in ["cargo", "rustc"] {
            let found = self.command(&format!("command -v {program}")).output()?;
            ensure!(!found.status.success(), "{program} is in {}: the trial would show nothing", self.path);
        }
        self.checks.ok("neither cargo nor rustc is in PATH");
        Ok(())
    }

    fn builds(&self, file: &str, text: &str) -> Result<()> {
        let source = self.folder.join(file);
        std::fs::write(&source, text)?;
        let status = Command::new(self.machine.compiler)
            .args(["-g", "-O0", "-o"])
            .arg(source.with_extension(""))
            .arg(&source)
            .status()?;
        ensure!(status.success(), "the C compiler does not build {file}");
        Ok(())
    }

    /// Runs a command, which must end with this code and print all these texts. Says how long it took.
    fn runs(&mut self, command: &str, code: i32, expected: &[&str]) -> Result<()> {
        let begun = Instant::now();
        let output = self.command(command).output().with_context(|| format!("cannot run {command}"))?;
        let (seconds, text) = (begun.elapsed().as_secs_f64(), both_streams(&output));
        self.checks.exit(command, output.status, output.status.code() == Some(code), &text);
        expected.iter().for_each(|part| self.checks.says(command, &text, part));
        println!("      {command}: {seconds:.2} s");
        Ok(())
    }

    fn command(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command).current_dir(&self.folder).env_clear();
        shell.env("PATH", &self.path).env("HOME", home(&self.folder));
        shell
    }
}

/// A home without a cache that another test has filled.
fn home(folder: &Path) -> PathBuf {
    folder.join("home")
}
