//! Writes what follows from the list of names in `symbols/` and from the functions in the source: a stub
//! for each function that is not simulated, and the driver's table of everything it exports.

use std::fmt::Write as _;

include!("names.rs");

fn main() {
    for path in ["build.rs", "names.rs", "symbols", "src"] {
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
