// Included by the build scripts: stubs for the functions of a list that no source file has.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

/// Writes `NAME.rs` with the stubs, and gives all names.
fn write_stubs(name: &str, prefix: &str, source: &Path) -> BTreeSet<String> {
    let mut simulated = BTreeSet::new();
    collect_functions(source, prefix, &mut simulated);
    let list = fs::read_to_string(format!("symbols/{name}.txt")).expect("the list of names is there");
    let listed: BTreeSet<String> = list.lines().map(str::to_owned).collect();
    let stubs: Vec<&str> = listed.difference(&simulated).map(String::as_str).collect();
    write(&format!("{name}.rs"), &format!("not_simulated! {{ {} }}\n", stubs.join(" ")));
    listed.union(&simulated).cloned().collect()
}

/// The functions below `path` that are exported: those whose name follows `prefix` with a capital letter.
fn collect_functions(path: &Path, prefix: &str, names: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("the source is there") {
            collect_functions(&entry.expect("the source is readable").path(), prefix, names);
        }
        return;
    }
    let text = fs::read_to_string(path).expect("the source is readable");
    let lines = text.lines().map(str::trim_start);
    let functions = lines.filter_map(|line| line.strip_prefix("extern \"C\" ").unwrap_or(line).strip_prefix("fn "));
    let function_names = functions.filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next());
    names.extend(function_names.filter(|name| is_exported(name, prefix)).map(str::to_owned));
}

fn is_exported(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn write(file: &str, text: &str) {
    let folder = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&folder).join(file), text).expect("OUT_DIR is writable");
}
