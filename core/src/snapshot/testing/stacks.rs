//! Stack tables for stories.

use std::num::NonZeroU32;

use super::super::{CodeAddress, Frame, StackId, Stacks};

/// candle, called by `Net::forward` at line 7 of the model, called by `main`.
pub(crate) const LINE_7: StackId = StackId(1);
/// A rayon worker without a user line.
pub(crate) const WORKER: StackId = StackId(2);
/// `main` at line 9, in a function with an array type whose name has a semicolon.
pub(crate) const LINE_9: StackId = StackId(3);

/// The stack table of the program `net`: [`LINE_7`], [`WORKER`] and [`LINE_9`].
pub(super) fn of_net() -> Stacks {
    let frames = vec![
        frame("candle_core::tensor::Tensor::relu", &registry("candle-core-0.11.1/src/tensor.rs"), 700),
        frame("net::Net::forward", "/home/u/net/src/model.rs", 7),
        frame("net::main", "/home/u/net/src/main.rs", 3),
        frame("rayon_core::join::join", &registry("rayon-core-1.13.0/src/join/mod.rs"), 130),
        frame("net::pad::<[f32; 4]>", "/home/u/net/src/main.rs", 9),
        frame("std::rt::lang_start", "/rustc/1234/library/std/src/rt.rs", 206),
    ];
    stacks(frames, [&[0, 1, 2, 5][..], &[3], &[4, 2, 5]])
}

/// A table of stacks 1, 2 … given as frame numbers, innermost first. Each frame has an address of its own.
pub(crate) fn stacks(frames: Vec<Frame>, stacks: impl IntoIterator<Item = impl AsRef<[u32]>>) -> Stacks {
    let address = |n: u32| CodeAddress {
        address: 0x200 + u64::from(n),
        object: Some(0),
        offset: 0x100 + u64::from(n),
        frames: n..n + 1,
    };
    Stacks::of((0..frames.len() as u32).map(address).collect(), frames, stacks)
}

/// A function of the program, or of a library if its file is in the [`registry`]. Empty texts and 0 mean unknown.
pub(crate) fn frame(function: &str, file: &str, line: u32) -> Frame {
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Frame { function: known(function), file: known(file), line: NonZeroU32::new(line), inlined: false }
}

/// The path of a library's file, such as `candle-core-0.11.1/src/tensor.rs`.
pub(crate) fn registry(file: &str) -> String {
    format!("/home/u/.cargo/registry/src/index-1/{file}")
}
