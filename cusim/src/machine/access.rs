//! Access rights of devices in mappings.

/// None, read, or read and write, in two bits for each device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access(u64);

impl Access {
    pub(crate) const READ_AND_WRITE: u64 = 3;

    /// The rights in memory that was not mapped explicitly.
    pub(crate) const FULL: Self = Self(u64::MAX);

    pub(super) fn of(self, device: usize) -> u64 {
        self.0 >> (2 * device) & 3
    }

    pub(super) fn set(&mut self, device: usize, flags: u64) {
        self.0 = self.0 & !(3 << (2 * device)) | flags << (2 * device);
    }

    pub(crate) fn is_open(self) -> bool {
        self.0 != 0
    }
}
