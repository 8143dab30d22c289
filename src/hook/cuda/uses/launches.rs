//! Kernel launches.

use super::arguments::Arguments;
use super::submit::{Looked, looked, submit};
use super::{layouts, nodes, scan};
use crate::hook::cuda::capture::capture_of;
use crate::hook::cuda::types::{Handle, Stream};
use crate::hook::interpose::Late;
use crate::record::uses::OperationKind;

pub(in crate::hook::cuda) fn launch(function: Handle, stream: Stream, arguments: Arguments) -> Looked {
    looked(|| look(function, stream, arguments))
}

/// A library has called the driver without hooks, because it looked up functions before its imports were patched.
/// Its launches until now were not seen, so they count as one opaque operation.
pub(in crate::hook::cuda) fn was_late(late: &Late) {
    looked(|| submit(Stream::NONE, |table, _| Some((table.kernels.id(late.object()), OperationKind::Opaque))));
}

fn look(function: Handle, stream: Stream, arguments: Arguments) {
    if let Some(capture) = capture_of(stream) {
        return nodes::capture_kernel(capture, function, arguments);
    }
    if !enter(function, stream, arguments, false) {
        layouts::learn(function);
        enter(function, stream, arguments, true);
    }
}

/// Enters a launch. Returns false if the function is launched for the first time and the driver was not queried yet.
fn enter(function: Handle, stream: Stream, arguments: Arguments, was_queried: bool) -> bool {
    let mut is_entered = true;
    submit(stream, |table, touched| {
        let (kernel, is_laid_out) = scan::each(table, function, arguments, |table, word, access| {
            table.collect(word, access, touched);
        });
        if kernel.is_none() && !was_queried {
            is_entered = false;
            return None;
        }
        let kernel = kernel.unwrap_or_else(|| table.kernels.id(b"(unnamed kernel)"));
        if !is_laid_out {
            // The kernel may use any block.
            table.begin();
            table.count_opaque_launch(kernel);
            return None;
        }
        Some((kernel, OperationKind::Kernel))
    });
    is_entered
}
