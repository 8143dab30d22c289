//! Where memtrace's own source files lie, as the compiler recorded it.

/// The folder of memtrace's own sources, with a slash at its end.
pub(crate) fn own() -> &'static str {
    // `file!()` is absolute in a dependency and relative in memtrace's own workspace.
    const HERE: &str = file!();
    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");
    HERE.strip_suffix("sources.rs").filter(|dir| dir.starts_with('/')).unwrap_or(ROOT)
}
