//! Where memtrace's own source files and those of the standard library lie, as compilers record it.

/// A source file of memtrace's, below its folder `src`: of a checkout that this was built in. Packages of a registry are told
/// by their names.
pub(crate) fn own(file: &str) -> Option<&str> {
    let checkout = env!("CARGO_MANIFEST_DIR").strip_suffix("core")?;
    let path = file.strip_prefix(checkout)?;
    path.strip_prefix("src/").or_else(|| path.strip_prefix("core/src/"))
}

/// Is this a source file of Rust's standard library or of what that is made of?
pub(crate) fn is_std(file: &str) -> bool {
    ["/rustc/", "/rust/deps/", "library/"].iter().any(|dir| file.starts_with(dir)) || file.contains("/rustlib/src/")
}
