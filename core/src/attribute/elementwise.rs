//! Element-wise operators of candle. Each element of the output needs one element of each operand, so the output can
//! overwrite an operand.

use super::frame_place::FramePlace;
use super::matched_frame::matched_frames;
use super::{Attribution, Origin, operator};
use crate::snapshot::StackId;

/// Functions of `candle_core::Tensor` with one operand.
const UNARY: [&str; 22] = [
    "abs", "affine", "ceil", "cos", "elu", "erf", "exp", "floor", "gelu", "gelu_erf", "log", "neg", "powf", "recip",
    "relu", "round", "sign", "silu", "sin", "sqr", "sqrt", "tanh",
];
/// Functions with two operands. They also implement `broadcast_add` and similar functions.
const BINARY: [&str; 6] = ["add", "div", "maximum", "minimum", "mul", "sub"];

/// A call of an element-wise operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elementwise<'a> {
    /// The operation that the program called: `silu`.
    pub(crate) operator: &'a str,
    /// Number of tensors that it reads.
    pub(crate) operands: u32,
}

/// The element-wise operator that a program calls by this stack. It must not be part of another operator, such as
/// softmax, nor of a backward pass.
pub(crate) fn elementwise<'d>(data: &'d Attribution<'_>, stack: StackId) -> Option<Elementwise<'d>> {
    let found = operator(data, stack).filter(|found| !found.is_backward)?;
    let name = found.root.strip_prefix("broadcast_").filter(|name| BINARY.contains(name)).unwrap_or(found.root);
    // `x * 2.0` is `mul`, implemented with `affine`.
    let is_one = [name, found.leaf].iter().all(|name| UNARY.contains(name) || BINARY.contains(name));
    let operands = if BINARY.contains(&found.leaf) { 2 } else { 1 };
    (is_one && is_candles(data, stack)).then_some(Elementwise { operator: found.root, operands })
}

/// Whether the operator is candle's. Other frameworks have operators with the same names, some of them on top of
/// candle.
fn is_candles(data: &Attribution<'_>, stack: StackId) -> bool {
    let is_programs = |origin| matches!(origin, Origin::Workspace | Origin::Library);
    let mut frames = matched_frames(data, stack).take_while(|frame| !is_programs(frame.origin()));
    frames.all(|frame| frame.origin() != Origin::Framework || is_of_candle(&FramePlace::of(frame.frame)))
}

fn is_of_candle(place: &FramePlace<'_>) -> bool {
    place.package.starts_with("candle_") || place.package == "cudarc"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::{Story, frame, registry, stacks};

    /// The operator found in a stack of these functions and files, innermost first, that `main` calls.
    fn found(functions: &[(&str, &str)]) -> Option<(String, u32)> {
        let mut frames: Vec<_> = functions.iter().map(|(name, file)| frame(name, &registry(file), 1)).collect();
        frames.push(frame("net::main", "/home/u/net/src/main.rs", 9));
        let all: Vec<u32> = (0..frames.len() as u32).collect();
        let mut story = Story::cuda(0);
        story.stacks(stacks(frames, [all]));
        let data = story.build();
        elementwise(&Attribution::new(&data), StackId(1)).map(|found| (found.operator.to_owned(), found.operands))
    }

    const TENSOR: &str = "candle-core-0.11.1/src/tensor.rs";

    #[test]
    fn element_wise_operators_are_told_by_what_the_program_calls_and_what_that_is_implemented_with() {
        let one = |name| found(&[("cudarc::driver::alloc", "cudarc-0.19.0/src/driver.rs"), (name, TENSOR)]);
        assert_eq!(one("silu"), Some(("silu".to_owned(), 1)));
        assert_eq!(one("mul"), Some(("mul".to_owned(), 2)));
        assert_eq!(found(&[("add", TENSOR), ("broadcast_add", TENSOR)]), Some(("broadcast_add".to_owned(), 2)));
        assert_eq!(found(&[("affine", TENSOR), ("mul", TENSOR)]), Some(("mul".to_owned(), 1)), "x * 2.0");
        for name in ["matmul", "broadcast_matmul", "sum_keepdim", "contiguous", "to_dtype", "conv2d", "cat", "eq"] {
            assert_eq!(one(name), None, "{name}");
        }
    }

    #[test]
    fn parts_of_other_operators_and_other_frameworks_are_none() {
        assert_eq!(found(&[("exp", TENSOR), ("softmax", "candle-nn-0.11.1/src/ops.rs")]), None);
        assert_eq!(found(&[("affine", TENSOR), ("step", "candle-nn-0.11.1/src/optim.rs")]), None);
        assert_eq!(found(&[("contiguous", TENSOR), ("add", TENSOR)]), None, "a copy");
        assert_eq!(found(&[("exp", TENSOR), ("exp", "burn-candle-0.20.0/src/ops/tensor.rs")]), None);
        assert_eq!(found(&[("add", TENSOR), ("backward", "candle-core-0.11.1/src/backprop.rs")]), None);
    }
}
