//! Source paths of memtrace and of the standard library, as compilers record them.

/// The path of a memtrace source file below `src`, if this was built in a checkout. (In a registry, the package's name tells.)
pub(crate) fn own(file: &str) -> Option<&str> {
    let checkout = env!("CARGO_MANIFEST_DIR").strip_suffix("core")?;
    let path = file.strip_prefix(checkout)?;
    path.strip_prefix("src/").or_else(|| path.strip_prefix("core/src/"))
}

/// True for source files of Rust's standard library and its dependencies.
pub(crate) fn is_std(file: &str) -> bool {
    ["/rustc/", "/rust/deps/", "library/"].iter().any(|dir| file.starts_with(dir)) || file.contains("/rustlib/src/")
}
