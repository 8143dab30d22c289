//! Limits against captures that are decompression bombs: a few bytes can repeat a long text many times, or nest scopes
//! without end. Captures of real programs are far below these limits.

use super::{Damage, StoredNames};
use crate::snapshot::{CodeAddress, ContextNode, Frame, SnapshotData};

/// The deepest nesting of scopes. A thread opens at most 64 inside one another, but other threads may open more inside
/// those.
pub(super) const DEEPEST: u32 = 4096;
/// Bytes of a frame without its texts.
const FRAME: usize = 16;
/// Bytes between two names of a path.
const SEPARATOR: usize = 4;
/// Bytes that are assumed for an address whose function is not known yet.
const UNNAMED: usize = 160;

/// The most devices of a process. Reports and pages go through all stacks and scopes for each device.
pub(super) const MOST_DEVICES: usize = 1024;

pub(super) fn devices(count: usize) -> Result<(), Damage> {
    if count > MOST_DEVICES { Err(Damage("more devices than a machine has")) } else { Ok(()) }
}

/// Bytes of text that a reader may still produce.
pub(super) struct Budget(usize);

impl Budget {
    /// The budget of a file of `length` bytes.
    pub(super) fn of(length: usize) -> Self {
        Self(length.saturating_mul(2048).saturating_add(64 << 20))
    }

    #[cfg(test)]
    pub(super) fn exactly(bytes: usize) -> Self {
        Self(bytes)
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<(), Damage> {
        self.0 = self.0.checked_sub(bytes).ok_or(Damage("more text than any program has"))?;
        Ok(())
    }
}

/// Checks the size of every stack and every path of scopes, each written out once.
pub(super) fn check(data: &SnapshotData, names: &StoredNames, length: usize) -> Result<(), Damage> {
    stacks(data, names, &mut Budget::of(length))?;
    paths(&data.contexts, &mut Budget::of(length))
}

pub(super) fn stacks(data: &SnapshotData, names: &StoredNames, budget: &mut Budget) -> Result<(), Damage> {
    let of_frame = |frame: &Frame| frame.function_or_empty().len() + frame.file_or_empty().len() + FRAME;
    let of_address = |(index, address): (usize, &CodeAddress)| {
        let texts = data.stacks.frames_at(address).iter().map(of_frame).sum();
        if names.has(index) { texts } else { UNNAMED.max(texts) }
    };
    let texts: Vec<usize> = data.stacks.addresses.iter().enumerate().map(of_address).collect();
    let calls = data.stacks.each_calls().flatten();
    calls.filter_map(|call| texts.get(*call as usize)).try_for_each(|text| budget.take(*text))
}

pub(super) fn paths(contexts: &[ContextNode], budget: &mut Budget) -> Result<(), Damage> {
    // Length and depth of each path; the root has none.
    let mut paths = vec![(0, 0)];
    for node in contexts.iter().skip(1) {
        let (length, depth) = paths.get(node.parent.0 as usize).copied().unwrap_or_default();
        let path = (length + node.name.len() + SEPARATOR, depth + 1);
        if path.1 > DEEPEST {
            return Err(Damage("scopes nested too deep"));
        }
        budget.take(path.0)?;
        paths.push(path);
    }
    Ok(())
}
