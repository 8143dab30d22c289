//! Resident set size (RSS) of the recorded process.

/// Physical memory of the whole process, as the kernel counts it: the heap, mapped files, the program's code, thread stacks,
/// memory of C libraries and memtrace's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    /// When it was read, in nanoseconds since the recording began.
    pub time_ns: u64,
    /// Resident bytes.
    pub resident: u64,
    /// The most that were resident since the process began.
    pub resident_high: u64,
    /// The part of `resident` that belongs to mapped files, such as safetensors and the program's code.
    pub files: u64,
    /// The largest `files` of all readings.
    pub files_high: u64,
    /// Bytes swapped out.
    pub swapped: u64,
}

impl HostMemory {
    /// This reading after an earlier one.
    #[must_use]
    pub fn after(self, earlier: Option<Self>) -> Self {
        Self { files_high: self.files_high.max(earlier.map_or(0, |earlier| earlier.files_high)), ..self }
    }
}
