//! Where memtrace's own source files and those of the standard library lie, as compilers record it.

/// The folder of memtrace's own sources, with a slash at its end.
pub(crate) fn own() -> &'static str {
    // `file!()` is absolute in a dependency and relative in memtrace's own workspace.
    const HERE: &str = file!();
    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");
    HERE.strip_suffix("sources.rs").filter(|dir| dir.starts_with('/')).unwrap_or(ROOT)
}

/// The crate whose models enter spans of their own.
pub(crate) const SPANNED_MODELS: &str = "candle_transformers";

/// Is this a source file of Rust's standard library or of what that is made of?
pub(crate) fn is_std(file: &str) -> bool {
    ["/rustc/", "/rust/deps/", "library/"].iter().any(|dir| file.starts_with(dir)) || file.contains("/rustlib/src/")
}
