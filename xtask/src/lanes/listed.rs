//! Completeness of the list of lanes: each benchmark and test program belongs to exactly one lane.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};

use super::LANES;
use crate::lane::Run;

/// Folders whose entries must be listed.
const FOLDERS: [&str; 4] = ["benches", "fuzz", "tests/programs", "tests/simulated"];
/// Entries that need no lane: packages' manifests, and code that tests and benchmarks share.
const SHARED: [&str; 5] =
    ["benches/shared", "fuzz/Cargo.toml", "fuzz/src", "tests/simulated/Cargo.toml", "tests/simulated/src"];

pub(crate) fn run(run: &Run) -> Result<String> {
    let problems = problems(&run.root, &listed())?;
    ensure!(problems.is_empty(), "xtask/src/lanes/mod.rs: {}", problems.join("; "));
    Ok(format!("{} files and folders in {} lanes", listed().len(), LANES.len()))
}

/// How often each path is listed.
fn listed() -> BTreeMap<&'static str, usize> {
    let mut listed = BTreeMap::new();
    for path in LANES.iter().flat_map(|lane| lane.owns) {
        *listed.entry(*path).or_default() += 1;
    }
    listed
}

fn problems(root: &Path, listed: &BTreeMap<&str, usize>) -> Result<Vec<String>> {
    let unlisted = to_list(root)?.into_iter().filter(|path| !listed.contains_key(path.as_str()));
    let mut problems: Vec<String> = unlisted.map(|path| format!("{path} belongs to no lane")).collect();
    for (path, times) in listed {
        if *times > 1 {
            problems.push(format!("{path} is listed {times} times"));
        }
        if !root.join(path).exists() {
            problems.push(format!("{path} is listed but does not exist"));
        }
    }
    Ok(problems)
}

fn to_list(root: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
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
    fn every_check_in_the_repository_is_listed() {
        assert_eq!(problems(root(), &listed()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_path_that_is_unlisted_listed_twice_or_missing_is_a_problem() {
        let mut listed = listed();
        listed.remove("fuzz/fuzz_targets");
        listed.insert("tests/gpu", 2);
        listed.insert("tests/missing", 1);
        let expected = [
            "fuzz/fuzz_targets belongs to no lane",
            "tests/gpu is listed 2 times",
            "tests/missing is listed but does not exist",
        ];
        assert_eq!(problems(root(), &listed).unwrap(), expected);
    }

    #[test]
    fn names_of_lanes_are_unique() {
        let mut names: Vec<_> = LANES.iter().map(|lane| lane.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), LANES.len());
    }
}
