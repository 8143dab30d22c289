//! The packages for the registry. Each is packaged, built from its `.crate`, and its unit tests run. The packages are
//! unpacked as they lie in the repository, because tests of one read files of another.

use std::path::Path;

use anyhow::{Context, Result};
use xshell::cmd;

use super::files::ReleaseFolder;
use super::versions::{self, Package};
use crate::checks::Checks;
use crate::lane::{Run, said};
use crate::lanes::packaged_source;

pub(super) fn package_and_build(run: &Run, release: &ReleaseFolder, checks: &mut Checks) -> Result<()> {
    let (shell, home) = (&run.shell, run.scratch("crates")?);
    let vendor = home.join("vendor");
    packaged_source(run, &vendor, &home.join(".cargo"))?;
    // Tests read candle's sources where cargo unpacks them.
    std::os::unix::fs::symlink(vendor, shell.create_dir(home.join(".cargo/registry/src"))?.join("vendor"))?;
    let _home = shell.push_env("CARGO_HOME", home.join(".cargo"));
    let _target = shell.push_env("CARGO_TARGET_DIR", home.join("target"));
    let (packages, folder) = (versions::in_order(run)?, home.join("unpacked"));
    for package in &packages {
        let file = run.target.join("package").join(package.file());
        let to = shell.create_dir(folder.join(place(run, package)?))?;
        cmd!(shell, "tar --extract --gzip --strip-components 1 --file {file} --directory {to}").quiet().run()?;
        shell.copy_file(file, release.path())?;
    }
    for package in &packages {
        let _here = shell.push_dir(folder.join(place(run, package)?));
        let built = cmd!(shell, "cargo build --quiet").quiet().run();
        checks.result(&package.file(), built.map(|()| "builds from its file".to_owned()).map_err(Into::into));
        let features = package.tested_features();
        let tests = said(cmd!(shell, "cargo test --quiet --lib --features={features}"));
        let tests = tests.and_then(|text| passed(&text));
        checks.result(&package.file(), tests);
    }
    Ok(())
}

/// The package's folder in the repository.
fn place<'p>(run: &Run, package: &'p Package) -> Result<&'p Path> {
    let folder = Path::new(&package.manifest_path).parent().context("a manifest lies in a folder")?;
    Ok(folder.strip_prefix(&run.root)?)
}

fn passed(text: &str) -> Result<String> {
    let counts = text.lines().find_map(|line| line.strip_prefix("test result: ok. "));
    let count = counts.and_then(|counts| counts.split(' ').next()).context("no tests ran")?;
    Ok(format!("{count} unit tests pass"))
}
