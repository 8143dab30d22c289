//! Generates code from the list of names in `symbols/` and from the functions in the source: a stub for each function
//! that is not simulated, and the table of the driver's exports.

use std::fmt::Write as _;

include!("names.rs");

fn main() {
    for path in ["build.rs", "names.rs", "symbols", "src"] {
        println!("cargo:rerun-if-changed={path}");
    }
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    // As in NVIDIA's driver: a program that defines the same names does not intercept calls inside the driver.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    let driver = write_stubs("driver", "cu", Path::new("src"));
    write("exports.rs", &exports(&driver));
}

/// The table behind `cuGetProcAddress`, sorted by name.
fn exports(names: &BTreeSet<String>) -> String {
    let mut declarations = String::new();
    let mut entries = String::new();
    for name in names {
        writeln!(declarations, "    fn {name}();").expect("writing to a String cannot fail");
        writeln!(entries, "    ExportedFunction {{ name: c\"{name}\", function: {name} }},")
            .expect("writing to a String cannot fail");
    }
    let count = names.len();
    format!(
        "unsafe extern \"C\" {{\n{declarations}}}\npub(super) static EXPORTS: [ExportedFunction; {count}] = [\n{entries}];\n"
    )
}
