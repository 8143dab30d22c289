//! Operator attribution: the tensor operation that allocated a block, from the frames of its stack.

use std::fmt;

use super::frame_place::FramePlace;
use super::matched_frame::matched_frames;
use super::torch::{self, TorchCall};
use super::{Attribution, Origin};
use crate::snapshot::{Fact, Frame, Rules, StackId};

/// A tensor operation, as the stack shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Operator<'a> {
    /// The operation that the program called: `pad_with_zeros`.
    pub root: &'a str,
    /// The operation with which it was implemented: `cat`. Often the same.
    pub leaf: &'a str,
    /// Whether it is part of a backward pass.
    pub is_backward: bool,
    /// The operation whose gradients the backward pass computed, if known. `|` separates alternatives.
    pub backward_of: Option<&'a str>,
}

impl fmt::Display for Operator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.backward_of {
            Some(of) => write!(f, "backward of {of}: ")?,
            None if self.is_backward => f.write_str("backward: ")?,
            None => {}
        }
        f.write_str(self.root)?;
        if self.leaf != self.root { write!(f, "/{}", self.leaf) } else { Ok(()) }
    }
}

/// The operator of a stack, if it has a known one.
///
/// Among the framework's frames below the program's own, the outermost operator is the root and the innermost is the
/// leaf. Within a backward pass, the root is the operator that the pass itself called.
pub fn operator<'d>(data: &'d Attribution<'_>, stack: StackId) -> Option<Operator<'d>> {
    let rules = &data.settings.rules;
    let (mut leaf, mut root, mut weak, mut pass, mut inside) = (None, None, None, None, false);
    for matched in matched_frames(data, stack) {
        let frame = matched.frame;
        match matched.origin() {
            Origin::Framework => inside = true,
            Origin::Workspace | Origin::Library if inside => break,
            Origin::Workspace | Origin::Library => return None,
            Origin::Std | Origin::Memtrace | Origin::Unknown => continue,
        }
        match torch::call(frame) {
            Some(TorchCall::Backward(node)) => {
                pass = Some(node);
                break;
            }
            Some(TorchCall::Operator(name)) => (leaf, root) = (leaf.or(Some(name)), Some(name)),
            Some(TorchCall::Weak(name)) => weak = Some(name),
            None => {}
        }
        if matched.is(Fact::Pass) {
            let place = FramePlace::of(frame);
            pass = Some(frame.line.and_then(|line| rules.backward(&place.package, place.version, line.get())));
            break;
        }
        if matched.is(Fact::Kernel) {
            // If a tail call removed the frame of the operator, the operation whose kernel this is names the
            // operator.
            (leaf, root, weak) = (None, None, matched.operator().or(weak));
        } else if let Some(name) = matched.operator() {
            leaf = leaf.or(Some(name));
            root = Some(name);
        } else {
            // In an optimized program, `zeros` may have jumped to `zeros_impl`, so that only `zeros_impl` has a
            // frame.
            weak = matched.implemented().or(weak);
        }
    }
    let (is_backward, backward_of) = (pass.is_some(), pass.flatten());
    match (root.or(weak), leaf.or(weak)) {
        (Some(root), Some(leaf)) => Some(Operator { root, leaf, is_backward, backward_of }),
        _ if is_backward => Some(Operator { root: "gradients", leaf: "gradients", is_backward, backward_of }),
        _ => None,
    }
}

/// The operator that made a square matrix, except if the program asked for the matrix itself.
pub(crate) fn squared_by<'d>(data: &'d Attribution<'_>, stack: StackId) -> Option<&'d str> {
    let square = matched_frames(data, stack).find(|frame| frame.is(Fact::Square))?;
    operator(data, stack).map(|found| found.root).filter(|root| *root != square.function())
}

pub(crate) fn has_backward_pass(data: &Attribution<'_>) -> bool {
    has_frame_of(data, Fact::Pass)
}

/// Whether the program has made variables. Results computed from variables keep what they were computed from.
pub(crate) fn has_variables(data: &Attribution<'_>) -> bool {
    has_frame_of(data, Fact::Variable)
}

fn has_frame_of(data: &Attribution<'_>, fact: Fact) -> bool {
    data.stacks.frames.iter().any(|frame| FramePlace::of(frame).is(&data.settings.rules, fact))
}

/// Whether this is a frame of a library for thread pools, which only runs the jobs of other crates.
pub(crate) fn is_pool(rules: &Rules, frame: &Frame) -> bool {
    rules.names(Fact::Pool, &FramePlace::of(frame).package)
}

/// Whether one call of this operator allocates with this stack at most once. That is true of the operator's own
/// library, unless the operator loops. Code that it calls (matrix kernels, thread pools) may repeat a stack.
pub(crate) fn allocates_once(data: &Attribution<'_>, stack: StackId, operator: &str) -> bool {
    let asking = matched_frames(data, stack).find(|frame| frame.origin() == Origin::Framework);
    asking.is_some_and(|frame| frame.is(Fact::Own)) && !data.settings.rules.names(Fact::Loop, operator)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::registry;

    #[test]
    fn a_type_is_named_where_its_function_is_none() {
        let mut rules = Rules::default();
        rules.add("operator my_cuda prim.rs *::process\noperator my_cuda other.rs Cuda*::process kernel").unwrap();
        assert_eq!(rules.method("luminal_cuda", "binary.rs", "process", "CudaSub"), Some("CudaSub"));
        let method = |file, of| rules.method("my_cuda", file, "process", of);
        assert_eq!(method("prim.rs", "CudaAdd"), Some("CudaAdd"));
        assert_eq!((method("prim.rs", ""), method("other.rs", "Mul")), (None, None), "nothing to call it");
        assert_eq!(method("other.rs", "CudaMul"), Some("kernel"));
    }

    #[test]
    fn an_operation_is_called_after_its_type_where_the_operators_frame_is_lost() {
        use crate::snapshot::testing::{Story, frame, stacks};
        let nn = |file: &str| registry(&format!("candle-nn-0.11.1/src/{file}"));
        let frames = vec![
            frame("candle_nn::ops::SoftmaxLastDim::cpu_fwd::softmax", &nn("ops.rs"), 1),
            frame("<candle_nn::ops::SoftmaxLastDim as candle_core::custom_op::CustomOp1>::cpu_fwd", &nn("ops.rs"), 2),
            frame("candle_core::storage::Storage::apply_op1", &registry("candle-core-0.11.1/src/storage.rs"), 3),
            frame("candle_nn::ops::softmax_last_dim", &nn("ops.rs"), 4),
            frame("net::main", "/home/u/net/src/main.rs", 9),
            frame("<candle_nn::rotary_emb::RotaryEmb as CustomOp3>::cuda_fwd", "", 0),
        ];
        let mut story = Story::cpu();
        story.stacks(stacks(frames, [&[0, 1, 2, 4][..], &[0, 1, 2, 3, 4], &[5, 2, 4]]));
        let data = story.build();
        let named = |stack| operator(&Attribution::new(&data), StackId(stack)).map(|operator| operator.to_string());
        assert_eq!(
            [1, 2, 3].map(named),
            ["softmax_last_dim", "softmax_last_dim", "rope"].map(|name| Some(name.to_owned()))
        );
    }

    #[test]
    fn what_implements_an_operator_names_it_where_the_operators_frame_is_lost() {
        use crate::snapshot::testing::{Story, frame, stacks};
        let core =
            |function: &str, file: &str| frame(function, &registry(&format!("candle-core-0.11.1/src/{file}")), 1);
        let frames = vec![
            core("candle_core::tensor::Tensor::zeros_impl", "tensor.rs"),
            core("candle_core::tensor::Tensor::zeros_like", "tensor.rs"),
            core("candle_core::storage::Storage::binary_impl", "storage.rs"),
            frame("net::zeros_impl", "/home/u/net/src/main.rs", 9),
        ];
        let mut story = Story::cpu();
        story.stacks(stacks(frames, [&[0, 3][..], &[0, 1, 3], &[2, 3], &[3]]));
        let data = story.build();
        let named = |stack| operator(&Attribution::new(&data), StackId(stack)).map(|operator| operator.to_string());
        let expected = [Some("zeros"), Some("zeros_like"), None, None];
        assert_eq!([1, 2, 3, 4].map(named), expected.map(|name| name.map(str::to_owned)));
    }

    fn frame(function: &str, file: &str) -> Frame {
        let file = if file.is_empty() { String::new() } else { registry(file) };
        crate::snapshot::testing::frame(function, &file, 1)
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
            ("forward", "candle-core-0.11.1/src/quantized/mod.rs", Some("QMatMul")),
            (
                "<candle_core::quantized::QMatMul as candle_core::Module>::forward",
                "candle-core-0.11.1/src/quantized/mod.rs",
                Some("QMatMul"),
            ),
        ] {
            let frame = frame(function, file);
            let place = FramePlace::of(&frame);
            let rules = Rules::default();
            assert_eq!(place.operator(&rules, frame.function_or_empty()), name, "{function} {file}");
        }
        let file = "candle-core-0.11.1/src/backprop.rs";
        let in_pass = |function| FramePlace::of(&frame(function, file)).is(&Rules::default(), Fact::Pass);
        assert!(in_pass("backward") && !in_pass("or_insert"));
    }
}
