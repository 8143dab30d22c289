// Included by the build scripts: stubs for the listed functions that no source file defines.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

/// Writes the stubs to `NAME.rs`, and returns all names.
fn write_stubs(name: &str, prefix: &str, source: &Path) -> BTreeSet<String> {
    let mut simulated = BTreeSet::new();
    collect_functions(source, prefix, &mut simulated);
    let list = fs::read_to_string(format!("symbols/{name}.txt")).expect("the list of names exists");
    let listed: BTreeSet<String> = list.lines().map(str::to_owned).collect();
    let stubs: Vec<&str> = listed.difference(&simulated).map(String::as_str).collect();
    write(&format!("{name}.rs"), &format!("not_simulated! {{ {} }}\n", stubs.join(" ")));
    listed.union(&simulated).cloned().collect()
}

/// Collects exported functions below `path`: names that continue `prefix` with a capital letter, after `fn` at the
/// start of a line or after the `|` of an alias.
fn collect_functions(path: &Path, prefix: &str, names: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("the source exists") {
            collect_functions(&entry.expect("the source is readable").path(), prefix, names);
        }
        return;
    }
    let text = fs::read_to_string(path).expect("the source is readable");
    for line in text.lines().map(str::trim_start) {
        let function = line.strip_prefix("extern \"C\" ").unwrap_or(line).strip_prefix("fn ");
        let aliases = line.split("| ").skip(1);
        let starts = function.into_iter().chain(aliases);
        let found = starts.filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next());
        names.extend(found.filter(|name| is_exported(name, prefix)).map(str::to_owned));
    }
}

fn is_exported(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn write(file: &str, text: &str) {
    let folder = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&folder).join(file), text).expect("OUT_DIR is writable");
}
