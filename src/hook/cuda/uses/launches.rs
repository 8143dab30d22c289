//! Kernel launches.

use super::arguments::Arguments;
use super::submit::{LOOKED, Looked, is_wanted, submit};
use super::{nodes, scan};
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
    scan::make_known(function);
    if let Some(capture) = capture_of(stream) {
        return nodes::capture_kernel(capture, function, arguments);
    }
    submit(stream, |table, touched| {
        let (kernel, is_known) = scan::each(table, function, arguments, |table, word, access| {
            table.collect(word, access, touched);
        });
        let kernel = kernel.unwrap_or_else(|| table.kernel(b"(unnamed kernel)"));
        if !is_known {
            // The kernel may use any block.
            table.begin();
            table.count_opaque_launch(kernel);
            return None;
        }
        Some((kernel, OperationKind::Kernel))
    });
}
