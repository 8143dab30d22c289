//! Kernel launches.

use super::arguments::Arguments;
use super::submit::{LOOKED, Looked, is_wanted, submit};
use super::{layouts, nodes, scan};
use crate::hook::cuda::capture::capture_of;
use crate::hook::cuda::types::{Handle, Stream};
use crate::record::guard;
use crate::record::uses::OperationKind;

pub(in crate::hook::cuda) fn launch(function: Handle, stream: Stream, arguments: Arguments) -> Looked {
    if is_wanted() {
        look(function, stream, arguments);
    }
    LOOKED
}

fn look(function: Handle, stream: Stream, arguments: Arguments) {
    let _own = guard::own_work();
    if let Some(capture) = capture_of(stream) {
        return nodes::capture_kernel(capture, function, arguments);
    }
    if !enter(function, stream, arguments, false) {
        layouts::learn(function);
        enter(function, stream, arguments, true);
    }
}

/// Enters a launch. False for a function that is launched for the first time, unless the driver was queried already.
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
        let kernel = kernel.unwrap_or_else(|| table.kernel(b"(unnamed kernel)"));
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
