//! How much a capture may make of its bytes. A few bytes can name a long text again and again, or put
//! scopes into scopes into scopes: a program's captures are far from these limits, whatever it does.

use super::Damage;
use crate::snapshot::{CodeAddress, ContextNode, Frame, SnapshotData};

/// Scopes within scopes: a thread keeps 64 of them apart, and passes its own on to others.
const DEEPEST: u32 = 4096;
/// What a frame takes besides its texts.
const FRAME: usize = 16;
/// What stands between two names of a path.
const SEPARATOR: usize = 4;
/// What an address takes whose function is not known yet.
const UNNAMED: usize = 160;

/// Text that may still be made.
pub(super) struct Budget(usize);

impl Budget {
    /// For so many bytes of a file.
    pub(super) fn of(length: usize) -> Self {
        Self(length.saturating_mul(2048).saturating_add(64 << 20))
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<(), Damage> {
        self.0 = self.0.checked_sub(bytes).ok_or(Damage("far more text than a program has"))?;
        Ok(())
    }
}

/// Every stack and every path of scopes written out once must be possible.
pub(super) fn check(data: &SnapshotData, symbolised: bool, length: usize) -> Result<(), Damage> {
    stacks(data, symbolised, &mut Budget::of(length))?;
    paths(&data.contexts, &mut Budget::of(length))
}

fn stacks(data: &SnapshotData, symbolised: bool, budget: &mut Budget) -> Result<(), Damage> {
    let of_frame = |frame: &Frame| frame.function_or_empty().len() + frame.file_or_empty().len() + FRAME;
    let of_address = |address: &CodeAddress| match symbolised {
        true => data.stacks.frames_at(address).iter().map(of_frame).sum(),
        false => UNNAMED,
    };
    let texts: Vec<usize> = data.stacks.addresses.iter().map(of_address).collect();
    let calls = data.stacks.each_calls().flatten();
    calls.filter_map(|call| texts.get(*call as usize)).try_for_each(|text| budget.take(*text))
}

fn paths(contexts: &[ContextNode], budget: &mut Budget) -> Result<(), Damage> {
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
