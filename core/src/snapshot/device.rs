//! Which memory a block lives in.

use std::fmt;

/// A memory that is accounted for separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Device {
    /// The heap of this process, as far as it goes through `Alloc`.
    Cpu,
    /// A CUDA device by ordinal, counted as the driver counts.
    Cuda(u32),
    /// Memory of the host that CUDA allocated or that was registered with it: page-locked, for
    /// transfers.
    Pinned,
    /// CUDA's managed (unified) memory, which moves between host and devices.
    Managed,
    /// Memory of other processes, or of libraries for graphics, that CUDA has mapped into this process. It was
    /// taken elsewhere, and is no part of what is live on a `Cuda` device.
    Imported,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.pad("cpu"),
            Self::Pinned => f.pad("pinned"),
            Self::Managed => f.pad("managed"),
            Self::Imported => f.pad("imported"),
            Self::Cuda(ordinal) => f.pad(&format!("cuda:{ordinal}")),
        }
    }
}
