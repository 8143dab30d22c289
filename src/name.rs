//! Names for blocks: what a block of memory is, in the program's own words.

use crate::device::IntoDevice;
use crate::record::{BlockLabel, naming};
use crate::snapshot::Category;

/// Where a block begins: a pointer, or a device address as CUDA's driver has it.
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

/// Names the block that begins at an address, on whatever device it lies. Reports and traces show the
/// name wherever they show the block.
///
/// False if no recorded block begins there that is live now (it was allocated before the recording, or
/// is smaller than [`min_size`](crate::Builder::min_size)), or if 65,536 blocks that are live or were at
/// the peak have names already. The name belongs to the block: it stays with it when it is freed, a
/// second one takes its place, and neither the next block at the address nor a reallocated one has it.
/// What is longer than 256 bytes is cut.
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

/// As [`name`](fn@name), for a block of this device: the same address may mean different blocks on different ones.
pub fn name_on(device: impl IntoDevice, block: impl Into<Address>, name: &str) -> bool {
    naming::name(Some(device.into_device()), block.into().0, name.into())
}

/// As [`name_on`], and says what the block is for: tables by category believe that before anything else.
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
