//! Writes what follows from the lists of names in `symbols/` and from the functions in the source: a stub
//! for each function that is not simulated, and the driver's table of everything it exports.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() {
    for path in ["build.rs", "symbols", "src", "libraries"] {
        println!("cargo:rerun-if-changed={path}");
    }
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    // As NVIDIA's: calls inside the driver cannot be taken by a program that defines the same names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    let driver = write_stubs("driver", "cu", Path::new("src"));
    write("exports.rs", &exports(&driver));
    for (library, prefix) in [("cublas", "cublas"), ("curand", "curand"), ("cudart", "cuda")] {
        write_stubs(library, prefix, &Path::new("libraries").join(format!("{library}.rs")));
    }
}

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

/// The table behind `cuGetProcAddress`, sorted by name.
fn exports(names: &BTreeSet<String>) -> String {
    let mut text = String::from("unsafe extern \"C\" {\n");
    for name in names {
        writeln!(text, "    fn {name}();").expect("a String takes all");
    }
    writeln!(text, "}}\npub(super) static EXPORTS: [Export; {}] = [", names.len()).expect("a String takes all");
    for name in names {
        writeln!(text, "    Export {{ name: c\"{name}\", function: {name} }},").expect("a String takes all");
    }
    text + "];\n"
}

fn write(file: &str, text: &str) {
    let folder = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&folder).join(file), text).expect("OUT_DIR is writable");
}
