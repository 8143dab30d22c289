//! The addresses in a kernel's arguments.

use memtrace_core::snapshot::KernelId;

use super::arguments::{Argument, Arguments};
use super::layouts;
use crate::hook::cuda::types::Handle;
use crate::record::uses;
use crate::record::uses::{UseAccess, UseTable};

/// Queries the driver about a function, if it is not known yet.
pub(super) fn make_known(function: Handle) {
    if uses::with(|table| table.kernels.function(function.addr()).is_some()) == Some(false) {
        layouts::learn(function);
    }
}

/// Calls `take` with every word of a kernel's arguments, and with the addresses in tensor maps. Returns the kernel, if
/// it is known. Returns true if no address can be hidden: the layout is known, and so are all tensor maps.
pub(super) fn each(
    table: &UseTable,
    function: Handle,
    arguments: Arguments,
    mut take: impl FnMut(&UseTable, u64, UseAccess),
) -> (Option<KernelId>, bool) {
    let (kernel, layout) = table.kernels.function(function.addr()).unzip();
    let mut hides = false;
    let is_laid_out = arguments.each(layout.flatten(), |argument| match argument {
        Argument::Word(word, access) => take(table, word, access),
        Argument::Block(block, is_whole) => match table.tensor_map(&block) {
            Some(address) => take(table, address, UseAccess::Unknown),
            None => hides |= is_whole && !block.iter().any(|word| table.has(*word)),
        },
    });
    (kernel, is_laid_out && !hides)
}
