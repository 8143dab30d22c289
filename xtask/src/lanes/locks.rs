//! Checks that each workspace of the repository has a lock file that fits its manifests. Otherwise `--locked` would
//! fail, and without it cargo would change the file silently.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::checks::Checks;
use crate::lane::{Run, said};
use crate::tree;

pub(crate) fn run(run: &Run) -> Result<String> {
    let files = tree::files(run)?;
    let mut wanted = BTreeSet::new();
    for manifest in named(&files, "Cargo.toml") {
        wanted.insert(lock_file(run, manifest)?);
    }
    let there = named(&files, "Cargo.lock").map(str::to_owned).collect();
    let mut checks = Checks::default();
    for lock in wanted.union(&there) {
        checks.result(lock, judge(&run.shell, lock, wanted.contains(lock), there.contains(lock)));
    }
    checks.end()
}

fn named<'a>(files: &'a [String], name: &str) -> impl Iterator<Item = &'a str> {
    files.iter().map(String::as_str).filter(move |file| Path::new(file).file_name().is_some_and(|found| found == name))
}

/// The lock file of the workspace to which a manifest belongs.
fn lock_file(run: &Run, manifest: &str) -> Result<String> {
    let locate = cmd!(run.shell, "cargo locate-project --workspace --message-format plain --manifest-path {manifest}");
    let lock = Path::new(&locate.quiet().read()?).with_extension("lock");
    let lock = lock.strip_prefix(&run.root).with_context(|| format!("{manifest} belongs to another repository"))?;
    Ok(lock.display().to_string())
}

fn judge(shell: &Shell, lock: &str, is_wanted: bool, is_there: bool) -> Result<String> {
    ensure!(is_wanted, "no manifest has this lock file");
    ensure!(is_there, "git does not list it");
    // Like `cargo metadata --locked`, but downloads no package.
    let manifest = Path::new(lock).with_extension("toml");
    let fresh =
        |place: &[&str]| said(cmd!(shell, "cargo update --workspace --locked {place...} --manifest-path {manifest}"));
    fresh(&["--offline"]).or_else(|_| fresh(&[]))?;
    Ok("as its manifests ask for".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_is_stale_once_a_manifest_asks_for_more() {
        let folder = tempfile::tempdir().unwrap();
        let shell = Shell::new().unwrap();
        shell.change_dir(folder.path());
        for name in ["one", "two"] {
            let manifest = format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n[workspace]\n");
            shell.write_file(format!("{name}/Cargo.toml"), manifest).unwrap();
            shell.write_file(format!("{name}/src/lib.rs"), "").unwrap();
        }
        let judge = |is_wanted, is_there| judge(&shell, "one/Cargo.lock", is_wanted, is_there).is_ok();
        assert!(!judge(true, true), "there is none yet");
        cmd!(shell, "cargo generate-lockfile --offline --manifest-path one/Cargo.toml").quiet().run().unwrap();
        assert_eq!([(true, true), (false, true), (true, false)].map(|(a, b)| judge(a, b)), [true, false, false]);
        let more = "[package]\nname = \"one\"\nedition = \"2024\"\n[dependencies]\ntwo = { path = \"../two\" }\n";
        shell.write_file("one/Cargo.toml", more).unwrap();
        assert!(!judge(true, true));
    }
}
