//! Report of the parts that an export left out.

use std::fmt;

use crate::units::{Bytes, grouped};

/// The parts that an export left out to keep to its `max_bytes`. Prints as a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// Number of allocations that were left out, together with their frees.
    pub allocations: u64,
    /// The size of the largest of these allocations.
    pub largest: u64,
    /// The depth below which scopes were left out.
    pub scopes_below: Option<usize>,
    /// Number of devices that were left out, which are those with the smallest peaks.
    pub devices: u64,
    /// Number of rows or stacks that were summed in one row.
    pub rows: u64,
    /// Number of records that were left out at the beginning of the log.
    pub oldest_records: u64,
    /// The size up to which blocks outside of the peak's row were left out.
    pub blocks_up_to: Option<u64>,
    /// The budget.
    pub max_bytes: u64,
    /// True if the file is larger than the budget, because the parts that must stay take more.
    pub too_large: bool,
}

impl LeftOut {
    /// True if the export is complete.
    pub fn is_nothing(&self) -> bool {
        *self == Self { max_bytes: self.max_bytes, ..Self::default() }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.devices > 0 {
            parts.push(format!("the {} devices with the smallest peaks", grouped(self.devices)));
        }
        if self.allocations > 0 {
            let (count, largest) = (grouped(self.allocations), Bytes(self.largest));
            let why = "freed before the end and not live at the peak";
            parts.push(format!("{count} allocations of at most {largest}, {why}"));
        }
        if let Some(depth) = self.scopes_below {
            parts.push(format!("scopes nested deeper than {depth}"));
        }
        if self.rows > 0 {
            parts.push(format!("{} of the smallest rows, summed in one", grouped(self.rows)));
        }
        if self.oldest_records > 0 {
            parts.push(format!("the {} oldest records", grouped(self.oldest_records)));
        }
        if let Some(size) = self.blocks_up_to {
            parts.push(format!("blocks of at most {}, except in the row of the peak", Bytes(size)));
        }
        let budget = Bytes(self.max_bytes);
        match (parts.is_empty(), self.too_large) {
            (true, false) => f.write_str("nothing was left out"),
            (true, true) => write!(f, "nothing can be left out, although the file is larger than {budget}"),
            (false, false) => write!(f, "left out to keep to {budget}: {}", parts.join("; ")),
            (false, true) => {
                write!(f, "left out, although the rest is still larger than {budget}: {}", parts.join("; "))
            }
        }
    }
}
