//! Classifies stack frames by origin: whose code a frame is.

use crate::snapshot::{Fact, Frame, Rules, SymbolName};

/// Whose code a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Rust's standard library.
    Std,
    /// memtrace itself.
    Memtrace,
    /// candle, cudarc and their dependencies, and other frameworks that rules name.
    Framework,
    /// Another library, from a registry or a git checkout.
    Library,
    /// The user's own workspace: any other source file.
    Workspace,
    /// Neither the file nor the name tells the origin.
    Unknown,
}

impl Origin {
    /// The origin of a frame: by its file, or by the crate in its symbol name if there is no file.
    pub fn of(rules: &Rules, frame: &Frame) -> Self {
        match &frame.file {
            Some(file) => by_file(rules, file, frame.function_or_empty()),
            None => by_name(rules, frame.function_or_empty()),
        }
    }
}

fn by_file(rules: &Rules, file: &str, function: &str) -> Origin {
    if rules.is_own_file(file) {
        return Origin::Memtrace;
    }
    if crate::sources::is_std(file) {
        return Origin::Std;
    }
    match library_of(file) {
        Some("candle-memtrace" | "memtrace-core" | "memtrace-preload") => Origin::Memtrace,
        Some(package) => by_crate(rules, &package.replace('-', "_"), Origin::Library),
        None if file.ends_with(".rs") => vendored(rules, file),
        None => super::torch::origin(file, function),
    }
}

/// A file outside the registry is the user's own, unless it is in a copy of a framework or under `vendor`.
fn vendored(rules: &Rules, file: &str) -> Origin {
    let package = package_and_path(file).map(|(package, _)| package);
    let otherwise = if file.contains("/vendor/") { Origin::Library } else { Origin::Workspace };
    package.map_or(otherwise, |package| by_crate(rules, &package.replace('-', "_"), otherwise))
}

fn library_of(file: &str) -> Option<&str> {
    if let Some((_, path)) = file.split_once("/registry/src/") {
        return path.split('/').nth(1).map(without_version);
    }
    let (_, path) = file.split_once("/git/checkouts/")?;
    // CHECKOUT-HASH/REVISION/[FOLDER/…]src/…: usually the folder before `src` is the package.
    let before_src = path.split("/src/").next()?;
    let folders: Vec<&str> = before_src.split('/').collect();
    match folders.as_slice() {
        [checkout, _revision] => checkout.rsplit_once('-').map(|(name, _)| name),
        [.., package] => Some(package),
        [] => None,
    }
}

/// The package of a source file, without its version, and the file's path below `src`.
pub(crate) fn package_and_path(file: &str) -> Option<(&str, &str)> {
    let (folder, path) = file.rsplit_once("/src/")?;
    folder.rsplit('/').next().map(|package| (without_version(package), path))
}

/// The version of a package in a registry; empty if the path has none.
pub(super) fn version_of(file: &str) -> &str {
    let package = file.rsplit_once("/src/").and_then(|(folder, _)| folder.rsplit('/').next()).unwrap_or_default();
    package.get(without_version(package).len()..).unwrap_or_default().trim_start_matches('-')
}

/// `candle-core-0.11.1` becomes `candle-core`.
fn without_version(folder: &str) -> &str {
    let version = folder.match_indices('-').find(|(at, _)| folder[at + 1..].starts_with(|c: char| c.is_ascii_digit()));
    version.map_or(folder, |(at, _)| &folder[..at])
}

fn by_name(rules: &Rules, function: &str) -> Origin {
    match SymbolName(function).crate_and_module().map(|(package, _)| package) {
        Some("std" | "core" | "alloc" | "rustc" | "hashbrown") => Origin::Std,
        Some("memtrace" | "memtrace_core" | "memtrace_preload") => Origin::Memtrace,
        Some(name) => by_crate(rules, name, Origin::Workspace),
        None => Origin::Unknown,
    }
}

fn by_crate(rules: &Rules, name: &str, otherwise: Origin) -> Origin {
    if rules.names(Fact::Framework, name) { Origin::Framework } else { otherwise }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_tell_whose_code_it_is() {
        let cases = [
            ("/home/u/.cargo/registry/src/index-1/candle-core-0.11.1/src/tensor.rs", Origin::Framework),
            ("/home/u/.cargo/registry/src/index-1/gemm-f32-0.19.0/src/lib.rs", Origin::Framework),
            ("/home/u/.cargo/registry/src/index-1/candle-transformers-0.11.1/src/models/llama.rs", Origin::Library),
            ("/home/u/.cargo/registry/src/index-1/candle-memtrace-0.1.0/src/scope.rs", Origin::Memtrace),
            ("/home/u/.cargo/git/checkouts/candle-0c2b/7e49a4b/candle-core/src/tensor.rs", Origin::Framework),
            ("/home/u/.cargo/git/checkouts/cudarc-ab12/0123456/src/driver/safe.rs", Origin::Framework),
            ("/rustc/59807616e/library/alloc/src/vec/mod.rs", Origin::Std),
            ("/home/u/.rustup/toolchains/stable/lib/rustlib/src/rust/library/core/src/x.rs", Origin::Std),
            ("/rust/deps/hashbrown-0.16.1/src/raw/mod.rs", Origin::Std),
            ("/home/u/my-model/vendor/candle-core/src/tensor.rs", Origin::Framework),
            ("/home/u/candle/candle-nn/src/linear.rs", Origin::Framework),
            ("/home/u/my-model/vendor/tokenizers/src/lib.rs", Origin::Library),
            ("/home/u/my-model/src/main.rs", Origin::Workspace),
            ("./csu/../sysdeps/nptl/libc_start_call_main.h", Origin::Unknown),
        ];
        for (file, origin) in cases {
            assert_eq!(by_file(&Rules::default(), file, ""), origin, "{file}");
        }
        // A checkout at any path, as the recording names it. The reader's own path does not matter.
        let mut rules = Rules::default();
        rules.set_own_folder("/elsewhere/my checkout/");
        for (file, origin, otherwise) in [
            ("/elsewhere/my checkout/src/scope.rs", Origin::Memtrace, Origin::Workspace),
            ("/elsewhere/my checkout/core/src/lib.rs", Origin::Memtrace, Origin::Workspace),
            ("/elsewhere/my checkout/tests/resnet.rs", Origin::Workspace, Origin::Workspace),
            (concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs"), Origin::Workspace, Origin::Workspace),
        ] {
            assert_eq!(
                (by_file(&rules, file, ""), by_file(&Rules::default(), file, "")),
                (origin, otherwise),
                "{file}"
            );
        }
    }

    #[test]
    fn names_tell_where_there_is_no_file() {
        let cases = [
            ("<candle_core::tensor::Tensor>::matmul", Origin::Framework),
            ("<&candle_nn::linear::Linear as candle_core::Module>::forward", Origin::Framework),
            ("alloc::raw_vec::RawVec<T>::grow", Origin::Std),
            ("hashbrown::raw::RawTable<T>::reserve_rehash", Origin::Std),
            ("__rustc::__rust_alloc", Origin::Std),
            ("memtrace::scope::scope", Origin::Memtrace),
            ("my_model::train", Origin::Workspace),
            ("main", Origin::Unknown),
            ("libc.so.6+0x1234", Origin::Unknown),
        ];
        for (name, origin) in cases {
            assert_eq!(by_name(&Rules::default(), name), origin, "{name}");
        }
    }
}
