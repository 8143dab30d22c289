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
use crate::lanes::wheel;

pub(crate) fn dry_run(run: &Run) -> Result<String> {
    let mut checks = Checks::default();
    let version = versions::check(run, &mut checks)?;
    let release = ReleaseFolder::new(run, &version)?;
    let wheel = wheel::make(run, release.path())?;
    archive::make(run, &release, &wheel)?;
    trial::try_archive(run, &release, &mut checks)?;
    crates::package_and_build(run, &release, &mut checks)?;
    release.write_checksums(run)?;
    println!("In {}:\n{}", release.path().display(), release.listing()?);
    checks.end()
}
