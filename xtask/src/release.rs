//! `cargo xtask release --dry-run`: all steps of a release except publishing. The results are in `release/` of the
//! target folder. Publishing is a person's decision.

mod archive;
mod crates;
mod files;
mod licences;
mod trial;
mod versions;

use anyhow::Result;

use self::files::ReleaseFolder;
use crate::checks::Checks;
use crate::lane::Run;
use crate::lanes::{emulated, wheel};
use crate::machine::{AARCH64, HERE, Machine};

pub(crate) fn dry_run(run: &Run) -> Result<String> {
    let mut checks = Checks::default();
    let version = versions::check(run, &mut checks)?;
    let release = ReleaseFolder::new(run, &version)?;
    for machine in machines(run)? {
        println!("      for {}:", machine.target);
        let wheel = wheel::make(run, machine, &run.scratch(machine.target)?)?;
        run.shell.copy_file(&wheel, release.path())?;
        archive::make(run, &release, machine, &wheel)?;
        trial::try_archive(run, &release, machine, &mut checks)?;
    }
    crates::package_and_build(run, &release, &mut checks)?;
    release.write_checksums(run)?;
    println!("In {}:\n{}", release.path().display(), release.listing()?);
    checks.end()
}

/// This machine, and aarch64 if it can be emulated.
fn machines(run: &Run) -> Result<Vec<Machine>> {
    if HERE.target == AARCH64.target {
        return Ok(vec![HERE]);
    }
    if emulated::prepare(run)?.is_none() {
        println!("note  {} NOT MADE: only root installs what emulates it", AARCH64.target);
        return Ok(vec![HERE]);
    }
    Ok(vec![HERE, AARCH64])
}
