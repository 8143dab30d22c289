//! Native libraries that allocate device memory themselves, such as cuBLAS.

use super::matched_frame::matched_at;
use super::{Attribution, Origin};
use crate::snapshot::{CodeAddress, Fact, Frame, Rules, StackId};

/// File name of the native library that allocated the block itself: `libcublas.so.13`.
pub fn library<'d>(data: &'d Attribution<'_>, stack: StackId) -> Option<&'d str> {
    let is_own = |address: &&CodeAddress| is_of_memtrace(origins(data, address));
    let asking = data.stacks.addresses(stack).find(|address| !is_own(address))?;
    let is_native = origins(data, asking).all(|origin| origin == Origin::Unknown);
    let module = data.objects.get(asking.object? as usize)?;
    name_of_library(&data.settings.rules, module.path.as_deref()?).filter(|_| is_native)
}

fn origins(data: &Attribution<'_>, address: &CodeAddress) -> impl Iterator<Item = Origin> {
    matched_at(data, address).map(|frame| frame.origin())
}

/// Whether this address is in memtrace, or in std called by memtrace. Such addresses are left out of stacks.
pub(crate) fn is_memtraces(rules: &Rules, frames: &[Frame]) -> bool {
    is_of_memtrace(frames.iter().map(|frame| Origin::of(rules, frame)))
}

fn is_of_memtrace(mut origins: impl Iterator<Item = Origin>) -> bool {
    match origins.next() {
        // An outer frame of memtrace does not count: a scope is inlined into the program around the code that it
        // runs.
        None | Some(Origin::Memtrace | Origin::Std) => true,
        Some(_) => origins.any(|origin| origin == Origin::Std),
    }
}

/// File name of an interpreter, or of a shared library that may allocate memory itself.
pub(crate) fn name_of_library<'a>(rules: &Rules, path: &'a str) -> Option<&'a str> {
    let name = path.rsplit('/').next()?;
    let is_library = name.contains(".so") && !rules.names(Fact::PassesOn, name);
    (is_library || is_interpreter(path)).then_some(name)
}

/// Whether this is CPython. Its own lines in C tell nothing about the program that it runs.
pub(crate) fn is_interpreter(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let version = name.strip_prefix("libpython3").or_else(|| name.strip_prefix("python3"));
    version.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::{Story, frame, registry, stacks};

    #[test]
    fn programs_and_what_passes_requests_on_are_no_libraries() {
        let name_of_library = |path| name_of_library(&Rules::default(), path);
        assert_eq!(name_of_library("/opt/lib/libcublasLt.so.13"), Some("libcublasLt.so.13"));
        assert_eq!(name_of_library("/usr/bin/python3"), Some("python3"));
        assert_eq!(name_of_library("/usr/bin/python3.11"), Some("python3.11"));
        assert_eq!(name_of_library("/usr/lib/libpython3.12.so.1.0"), Some("libpython3.12.so.1.0"));
        for other in [
            "/usr/bin/python3-config",
            "/usr/lib/libcuda.so.1",
            "/x/libcudart.so.12",
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/home/u/train",
            "",
        ] {
            assert_eq!(name_of_library(other), None, "{other}");
        }
    }

    #[test]
    fn rust_in_a_shared_library_is_the_programs() {
        let asking = |frame| {
            let mut data = Story::cpu().stacks(stacks(vec![frame], [[0]])).build();
            data.objects[0].path = Some("/opt/lib/libnet.so.1".into());
            library(&Attribution::new(&data), StackId(1)).map(str::to_owned)
        };
        let rust = frame("candle_core::tensor::Tensor::relu", &registry("candle-core-0.11.1/src/tensor.rs"), 700);
        assert_eq!(asking(rust), None, "it has lines of its own");
        assert_eq!(asking(frame("cublasCreate_v2", "", 0)).as_deref(), Some("libnet.so.1"));
    }
}
