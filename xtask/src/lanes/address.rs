//! Checks that the repository's address is only in Cargo.toml. The address is a placeholder for now, and has to be
//! changed in one place.

use anyhow::{Context, Result, ensure};

use crate::lane::Run;
use crate::tree;

const PLACE: &str = "Cargo.toml";

pub(super) fn run(run: &Run) -> Result<()> {
    let manifest = run.shell.read_file(run.root.join(PLACE))?;
    let address = address(&manifest).context("Cargo.toml has no repository")?;
    ensure!(manifest.matches(address).count() == 1, "{PLACE} has {address} more than once");
    let files = tree::files(run)?.into_iter().filter(|file| file != PLACE);
    let found: Vec<String> = files.filter(|file| names(run, file, address)).collect();
    ensure!(found.is_empty(), "{address} belongs into {PLACE} only; it stands in {}", found.join(", "));
    Ok(())
}

/// The address without the protocol, which is part of all its forms.
fn address(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("repository = \"https://"))?;
    line.strip_suffix('"')
}

/// Whether a file contains the address.
fn names(run: &Run, file: &str, address: &str) -> bool {
    std::fs::read(run.root.join(file)).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_the_manifest() {
        let manifest = "[workspace.package]\nversion = \"0.1.0\"\nrepository = \"https://forge.example/owner/name\"\n";
        assert_eq!(address(manifest), Some("forge.example/owner/name"));
        assert_eq!(address("[package]\nrepository.workspace = true\n"), None);
    }
}
