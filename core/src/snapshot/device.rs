//! Memory devices, which are accounted for separately.

use std::fmt;

/// A memory whose blocks are accounted for separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Device {
    /// The heap of this process. Only requests through the global allocator `Alloc` are seen, or with the preload
    /// library, through C's allocator.
    #[default]
    Cpu,
    /// A CUDA device, by the driver's ordinal.
    Cuda(u32),
    /// Page-locked (pinned) host memory: allocated by CUDA, or registered with it.
    Pinned,
    /// CUDA managed (unified) memory, which migrates between host and devices.
    Managed,
    /// Memory of other processes or of graphics libraries, mapped into this process by CUDA. It is no part of the live
    /// bytes of a `Cuda` device.
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
