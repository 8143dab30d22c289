//! Names for blocks, chosen by the program.

use memtrace_core::snapshot::Category;

use crate::device::IntoDevice;
use crate::record::{BlockLabel, naming};

/// The address at which a block begins: a pointer, or a CUDA device address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address(u64);

impl Address {
    #[cfg(feature = "candle")]
    pub(crate) fn into_inner(self) -> u64 {
        self.0
    }
}

impl From<u64> for Address {
    fn from(address: u64) -> Self {
        Self(address)
    }
}

impl<T> From<*const T> for Address {
    fn from(block: *const T) -> Self {
        Self(block.addr() as u64)
    }
}

impl<T> From<*mut T> for Address {
    fn from(block: *mut T) -> Self {
        Self(block.addr() as u64)
    }
}

/// Names the block that begins at an address, on any device. Reports and traces show the name wherever they show the
/// block.
///
/// Returns false if no recorded live block begins there (it was allocated before the recording, or is smaller than
/// [`min_size`](crate::Builder::min_size)), or if 65,536 blocks that are live or were at the peak have names already.
///
/// The name belongs to the block, not to the address: it survives the free, and neither a reallocated block nor the
/// next block at the address inherits it. A second name replaces the first. Names are cut to 256 bytes.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// let session = memtrace::start()?;
/// let weights = vec![0f32; 1000];
/// assert!(memtrace::name(weights.as_ptr(), "weights"));
/// let report = session.snapshot().report().to_string();
/// assert!(report.contains("At the peak, by name"));
/// # Ok::<(), memtrace::Error>(())
/// ```
pub fn name(block: impl Into<Address>, name: &str) -> bool {
    naming::name(None, block.into().0, name.into())
}

/// Like [`name`](fn@name), but only for a block on this device. Two devices may use the same address for different
/// blocks.
pub fn name_on(device: impl IntoDevice, block: impl Into<Address>, name: &str) -> bool {
    naming::name(Some(device.into_device()), block.into().0, name.into())
}

/// Like [`name_on`], and also sets the block's category. This category overrides what attribution would find.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// use memtrace::Category;
///
/// let session = memtrace::start()?;
/// let keys = vec![0f32; 1000];
/// assert!(memtrace::name_as(memtrace::Device::Cpu, keys.as_ptr(), "keys of layer 3", Category::KvCache));
/// # Ok::<(), memtrace::Error>(())
/// ```
pub fn name_as(device: impl IntoDevice, block: impl Into<Address>, name: &str, category: Category) -> bool {
    let label = BlockLabel { category, ..name.into() };
    naming::name(Some(device.into_device()), block.into().0, label)
}
