//! Holds the list of lanes against what is in the repository.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

use super::{LANES, TOOLS};
use crate::lane::Run;

/// Whatever is in these folders belongs to one lane, or is a tool.
const FOLDERS: [&str; 5] = ["benches", "fuzz", "scripts", "tests/programs", "tests/simulated"];
/// So do these, which are packages of their own or settings of a check.
const SINGLE: [&str; 5] = ["deny.toml", "rustfmt.toml", "tests/gpu", "tests/loom", "xtask/perfetto"];
/// What serves others: packages' manifests, and what tests and benchmarks share.
const SHARED: [&str; 5] =
    ["benches/shared", "fuzz/Cargo.toml", "fuzz/src", "tests/simulated/Cargo.toml", "tests/simulated/src"];

pub(crate) fn run(run: &Run) -> Result<String> {
    let wrong = wrong(&run.root, &places())?;
    match wrong.is_empty() {
        true => Ok(format!("{} files and folders in {} lanes", places().len(), LANES.len())),
        false => bail!("xtask/src/lanes/mod.rs: {}", wrong.join("; ")),
    }
}

/// How often each path is listed.
fn places() -> BTreeMap<&'static str, usize> {
    let mut places = BTreeMap::new();
    let owned = LANES.iter().flat_map(|lane| lane.owns);
    for path in owned.chain(TOOLS.iter().map(|(path, _)| path)) {
        *places.entry(*path).or_default() += 1;
    }
    places
}

/// What is wrong with a list, in words.
fn wrong(root: &Path, places: &BTreeMap<&str, usize>) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for path in there(root)? {
        if !places.contains_key(path.as_str()) {
            wrong.push(format!("{path} is in no lane and no tool"));
        }
    }
    for (path, times) in places {
        if *times > 1 {
            wrong.push(format!("{path} is listed {times} times"));
        }
        if !root.join(path).exists() {
            wrong.push(format!("{path} is listed and not there"));
        }
    }
    Ok(wrong)
}

/// What must be listed.
fn there(root: &Path) -> Result<Vec<String>> {
    let mut paths = SINGLE.map(str::to_owned).to_vec();
    for folder in FOLDERS {
        for entry in std::fs::read_dir(root.join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let path = format!("{folder}/{name}");
            let made = name.starts_with(['.', '_'])
                || name == "Cargo.lock"
                || ["corpus", "target", "artifacts"].contains(&name.as_str());
            if !made && !SHARED.contains(&path.as_str()) {
                paths.push(path);
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    #[test]
    fn what_is_in_the_repository_is_listed() {
        assert_eq!(wrong(root(), &places()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_is_missing_twice_or_gone_is_said() {
        let mut places = places();
        places.remove("tests/loom");
        places.insert("scripts/bench-record", 2);
        places.insert("scripts/that-was", 1);
        let expected = [
            "tests/loom is in no lane and no tool",
            "scripts/bench-record is listed 2 times",
            "scripts/that-was is listed and not there",
        ];
        assert_eq!(wrong(root(), &places).unwrap(), expected);
    }

    #[test]
    fn each_name_is_one_lane() {
        let mut names: Vec<_> = LANES.iter().map(|lane| lane.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), LANES.len());
    }
}
