//! Names of functions by their addresses in a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use crate::lane::Run;

/// Names by address. An address may have several names.
pub(super) type Names = BTreeMap<u64, BTreeSet<String>>;

/// What a driver library exports.
pub(super) fn exports(run: &Run, driver: &Path) -> Result<Names> {
    let names = listed(&cmd!(run.shell, "nm --dynamic --defined-only {driver}").quiet().read()?, |name| Some(name))?;
    ensure!(names.len() > 100, "{} exports {} functions", driver.display(), names.len());
    Ok(names)
}

/// memtrace's hooks in a file, by the names of the driver's functions.
pub(super) fn hooks(run: &Run, file: &Path) -> Result<Names> {
    let names = listed(&cmd!(run.shell, "nm --defined-only {file}").quiet().read()?, hooked)?;
    ensure!(!names.is_empty(), "{} has no hooks with names", file.display());
    Ok(names)
}

/// The name of the driver's function in the mangled name of `memtrace::hook::cuda::calls::FUNCTION::hook`.
fn hooked(symbol: &str) -> Option<&str> {
    let (_, after) = symbol.split_once("8memtrace4hook4cuda5calls")?;
    let digits = after.find(|c: char| !c.is_ascii_digit())?;
    let length = after[..digits].parse::<usize>().ok()?;
    let (name, rest) = after[digits..].split_at_checked(length)?;
    rest.starts_with("4hook17h").then_some(name)
}

fn listed(text: &str, name_of: impl Fn(&str) -> Option<&str>) -> Result<Names> {
    let mut names = Names::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (address, name) =
            (words.next().context("nm prints an address")?, words.next_back().context("nm prints a name")?);
        if let Some(name) = name_of(name.split('@').next().unwrap_or(name)) {
            names.entry(u64::from_str_radix(address, 16)?).or_default().insert(name.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_known_by_its_mangled_name() {
        assert_eq!(hooked("_ZN8memtrace4hook4cuda5calls11cuMemCreate4hook17h4f1be631b6611578E"), Some("cuMemCreate"));
        assert_eq!(hooked("_ZN8memtrace4hook4cuda5calls8ORIGINAL17h4f1be631b6611578E"), None);
        assert_eq!(hooked("_ZN4core5calls11cuMemCreate4hook17h4f1be631b6611578E"), None);
    }
}
