//! Source paths of the standard library, as compilers record them.

/// True for source files of Rust's standard library and its dependencies.
pub(crate) fn is_std(file: &str) -> bool {
    ["/rustc/", "/rust/deps/", "library/"].iter().any(|dir| file.starts_with(dir)) || file.contains("/rustlib/src/")
}
