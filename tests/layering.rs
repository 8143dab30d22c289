//! Keeps ARCHITECTURE.md's "who may know whom" true: which part of `src/` names which other part.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each part with the parts that it may know. Leaves may be known by all and are not listed.
const MAY_KNOW: [(&str, &[&str]); 11] = [
    ("record", &["snapshot"]),
    ("hook", &["record", "snapshot"]),
    ("scope", &["record", "snapshot"]),
    ("layer", &["record", "scope"]),
    ("future", &["scope"]),
    ("symbol", &["snapshot"]),
    ("device", &["snapshot"]),
    ("macros", &["assert_no_growth", "assert_no_leak", "assert_peak", "assert_scaling", "shell"]),
    ("name", &["device", "record", "snapshot"]),
    ("candle", &["cudarc", "device", "hook", "module", "name", "record", "snapshot"]),
    ("cudarc", &["name", "record", "snapshot"]),
];
/// The last is for tests alone.
const LEAVES: [&str; 7] = ["units", "elf", "errno", "error", "variable", "write_errors", "random"];
/// The only parts that see both sides.
const SEE_ALL: [&str; 3] = ["session", "assertion", "lib"];

fn source_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(source_files(&path)),
            false => files.push(path),
        }
    }
    files
}

/// `hook` for `src/hook/heap.rs`, `scope` for `src/scope.rs`.
fn part_of(file: &Path, src: &Path) -> String {
    let first = file.strip_prefix(src).unwrap().components().next().unwrap();
    first.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned()
}

/// What follows each `crate::` in code: names, or the names in a brace.
fn mentioned(code: &str) -> BTreeSet<String> {
    let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut names = BTreeSet::new();
    for (at, found) in code.match_indices("crate::") {
        let rest = &code[at + found.len()..];
        match rest.strip_prefix('{') {
            Some(list) => names.extend(list.split('}').next().unwrap().split(',').map(|item| name(item.trim()))),
            None => drop(names.insert(name(rest))),
        }
    }
    names
}

fn knowledge() -> BTreeMap<String, BTreeSet<(String, PathBuf)>> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut parts: BTreeMap<String, BTreeSet<(String, PathBuf)>> = BTreeMap::new();
    for file in source_files(&src) {
        let known = mentioned(&fs::read_to_string(&file).unwrap());
        parts.entry(part_of(&file, &src)).or_default().extend(known.into_iter().map(|name| (name, file.clone())));
    }
    parts
}

#[test]
fn every_part_knows_only_what_it_may() {
    for (part, known) in knowledge() {
        if LEAVES.contains(&part.as_str()) || SEE_ALL.contains(&part.as_str()) {
            continue;
        }
        let (_, allowed) =
            MAY_KNOW.iter().find(|(name, _)| *name == part).unwrap_or_else(|| panic!("{part} is not listed"));
        for (name, file) in known {
            let fine = name == part || LEAVES.contains(&name.as_str()) || allowed.contains(&name.as_str());
            assert!(fine, "{} knows `{name}`; {part} may know {allowed:?} and the leaves", file.display());
        }
    }
}

#[test]
fn leaves_know_only_leaves() {
    for (part, known) in knowledge().into_iter().filter(|(part, _)| LEAVES.contains(&part.as_str())) {
        for (name, file) in known {
            assert!(LEAVES.contains(&name.as_str()), "{}: the leaf {part} knows `{name}`", file.display());
        }
    }
}

#[test]
fn mentions_are_found_in_braces_and_not_in_comments() {
    let code = "use crate::{record, hook::x};\n// crate::nothing\nlet y = crate::scope::f();";
    assert_eq!(mentioned(code).into_iter().collect::<Vec<_>>(), ["hook", "record", "scope"]);
}
