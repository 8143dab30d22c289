//! The tensor operation that needed a block, from the frames of its stack.

use std::fmt;

use super::Origin;
use super::origin::package_and_path;
use crate::snapshot::{Frame, SnapshotData, StackId};

/// Where a framework has its operators: functions of these files, or of files below these folders.
struct Operators {
    package: &'static str,
    files: &'static [&'static str],
}

/// The table. (candle 0.8 to 0.11 agree on these files.)
const OPERATORS: [Operators; 2] = [
    Operators {
        package: "candle-core",
        files: &[
            "tensor.rs",
            "tensor_cat.rs",
            "conv.rs",
            "sort.rs",
            "indexer.rs",
            "convert.rs",
            "custom_op.rs",
            "variable.rs",
            "safetensors.rs",
            "quantized/",
        ],
    },
    Operators {
        package: "candle-nn",
        files: &[
            "activation.rs",
            "cpu_flash_attention/",
            "encoding.rs",
            "init.rs",
            "kv_cache.rs",
            "loss.rs",
            "moe.rs",
            "ops.rs",
            "optim.rs",
            "rotary_emb.rs",
            "sampling.rs",
            "var_map.rs",
        ],
    },
];

/// Functions in them that only help others.
const HELPERS: [&str; 12] = [
    "from_storage",
    "make_var",
    "cpu_fwd",
    "cuda_fwd",
    "metal_fwd",
    "fwd",
    "forward",
    "forward_t",
    "bwd",
    "storage",
    "to_vec",
    "new_cpu",
];

/// A tensor operation as the frames of a stack tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Operator<'a> {
    /// What the program called: `pad_with_zeros`.
    pub root: &'a str,
    /// What that came down to: `cat`; often the same.
    pub leaf: &'a str,
    /// It is part of a backward pass.
    pub is_backward: bool,
}

impl fmt::Display for Operator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.root)?;
        if self.leaf != self.root {
            write!(f, "/{}", self.leaf)?;
        }
        if self.is_backward { f.write_str(" (backward)") } else { Ok(()) }
    }
}

/// The operation that a stack belongs to; `None` if it belongs to none that is known.
///
/// Of the framework's frames below the program's own, those that are operators count: the outermost is the
/// root, the innermost the leaf. Within a backward pass the root is what the pass itself called.
pub fn operator(data: &SnapshotData, stack: StackId) -> Option<Operator<'_>> {
    let (mut leaf, mut root, mut is_backward, mut inside) = (None, None, false, false);
    for frame in data.stacks.frames(stack) {
        match Origin::of(frame) {
            Origin::Framework => inside = true,
            Origin::Workspace | Origin::Library if inside => break,
            Origin::Workspace | Origin::Library => return None,
            Origin::Std | Origin::Memtrace | Origin::Unknown => continue,
        }
        if is_backward_pass(frame) {
            is_backward = true;
            break;
        }
        if let Some(name) = operator_of(frame) {
            leaf = leaf.or(Some(name));
            root = Some(name);
        }
    }
    match (root, leaf) {
        (Some(root), Some(leaf)) => Some(Operator { root, leaf, is_backward }),
        _ if is_backward => Some(Operator { root: "gradients", leaf: "gradients", is_backward }),
        _ => None,
    }
}

/// `Tensor::backward` of candle.
fn is_backward_pass(frame: &Frame) -> bool {
    let (package, path) = place_of(frame);
    package == "candle-core" && path == "backprop.rs" && bare_name(&frame.function) == "backward"
}

fn operator_of(frame: &Frame) -> Option<&str> {
    let (package, path) = place_of(frame);
    let known = OPERATORS.iter().find(|known| known.package == package)?;
    let is_there = |file: &str| match file.strip_suffix('/') {
        Some(folder) => path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(['/', '.'])),
        None => path == file,
    };
    let name = bare_name(&frame.function);
    let helps =
        name.starts_with('{') || name.ends_with("_impl") || name.starts_with("apply") || HELPERS.contains(&name);
    (known.files.iter().any(|file| is_there(file)) && !helps && !name.is_empty()).then_some(name)
}

/// Package and path below `src`; from the name where there is no file.
fn place_of(frame: &Frame) -> (&str, String) {
    if let Some((package, path)) = package_and_path(&frame.file) {
        return (package, path.to_owned());
    }
    let mut parts = frame.function.trim_start_matches(['<', '&']).split("::");
    let package = match parts.next() {
        Some("candle_core") => "candle-core",
        Some("candle_nn") => "candle-nn",
        _ => "",
    };
    (package, parts.next().map(|module| format!("{module}.rs")).unwrap_or_default())
}

/// `matmul` of `candle_core::tensor::Tensor::matmul`, `zeros` of `zeros<&Shape>`, `mul` of
/// `<Tensor as core::ops::arith::Mul<f64>>::mul`.
pub(crate) fn bare_name(function: &str) -> &str {
    let (mut depth, mut start, mut end) = (0usize, 0, function.len());
    let bytes = function.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'<' => {
                if depth == 0 && at > start {
                    end = end.min(at);
                }
                depth += 1;
            }
            b'>' if at == 0 || bytes.get(at - 1) != Some(&b'-') => depth = depth.saturating_sub(1),
            b':' if depth == 0 && bytes.get(at + 1) == Some(&b':') && bytes.get(at + 2) != Some(&b'<') => {
                (start, end) = (at + 2, function.len());
            }
            _ => {}
        }
    }
    function.get(start..end).unwrap_or(function).trim_end_matches(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_stands_behind_its_path_and_before_its_types() {
        for (function, name) in [
            ("candle_core::tensor::Tensor::matmul", "matmul"),
            ("<candle_core::tensor::Tensor>::matmul", "matmul"),
            ("zeros<&candle_core::shape::Shape>", "zeros"),
            ("candle_core::tensor::Tensor::zeros::<&candle_core::shape::Shape>", "zeros"),
            ("<candle_core::tensor::Tensor as core::ops::arith::Mul<f64>>::mul", "mul"),
            ("candle_core::backprop::<impl candle_core::tensor::Tensor>::backward", "backward"),
            ("f<f32, fn(cudarc::CudaSlice<f32>) -> candle_core::CudaStorageSlice>", "f"),
            ("resnet::iteration::{{closure}}", "{{closure}}"),
            ("matmul", "matmul"),
            ("", ""),
        ] {
            assert_eq!(bare_name(function), name, "{function}");
        }
    }

    fn frame(function: &str, file: &str) -> Frame {
        let file = if file.is_empty() { String::new() } else { format!("/home/u/.cargo/registry/src/index-1/{file}") };
        Frame { function: function.into(), file, line: 1, inlined: false }
    }

    #[test]
    fn operators_are_functions_of_certain_files() {
        for (function, file, name) in [
            ("matmul", "candle-core-0.11.1/src/tensor.rs", Some("matmul")),
            ("sum_impl<&[usize]>", "candle-core-0.11.1/src/tensor.rs", None),
            ("binary_impl", "candle-core-0.11.1/src/storage.rs", None),
            ("quantize_onto", "candle-core-0.9.2/src/quantized/mod.rs", Some("quantize_onto")),
            ("softmax", "candle-nn-0.11.1/src/ops.rs", Some("softmax")),
            ("forward", "candle-nn-0.11.1/src/linear.rs", None),
            ("matmul", "other-1.0.0/src/tensor.rs", None),
            ("candle_core::tensor::Tensor::cat", "", Some("cat")),
            ("<candle_core::quantized::QTensor>::dequantize", "", Some("dequantize")),
            ("<candle_nn::optim::AdamW as candle_nn::optim::Optimizer>::step", "", Some("step")),
            ("my_model::tensor::cat", "", None),
        ] {
            assert_eq!(operator_of(&frame(function, file)), name, "{function} {file}");
        }
        assert!(is_backward_pass(&frame("backward", "candle-core-0.11.1/src/backprop.rs")));
        assert!(!is_backward_pass(&frame("or_insert", "candle-core-0.11.1/src/backprop.rs")));
    }
}
