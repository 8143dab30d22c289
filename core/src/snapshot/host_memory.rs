//! Resident set size (RSS) of the recorded process.

/// Physical memory of the whole process, as the kernel counts it: heap, mapped files, code, thread stacks, memory of C
/// libraries, and memtrace's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostMemory {
    /// When these figures were read, in nanoseconds since the recording began.
    pub time_ns: u64,
    /// Resident bytes.
    #[serde(rename = "resident_bytes")]
    pub resident: u64,
    /// The most bytes that were resident since the process began.
    #[serde(rename = "resident_peak_bytes")]
    pub resident_high: u64,
    /// The part of the resident bytes that belongs to mapped files, such as safetensors and the program's code.
    #[serde(rename = "mapped_file_bytes")]
    pub files: u64,
    /// The most bytes in mapped files at any reading.
    #[serde(rename = "mapped_file_peak_bytes")]
    pub files_high: u64,
    /// Bytes that are swapped out.
    #[serde(rename = "swapped_bytes")]
    pub swapped: u64,
}

impl HostMemory {
    /// This reading, with the larger `files_high` of this one and an earlier one.
    #[must_use]
    pub fn after(self, earlier: Option<Self>) -> Self {
        Self { files_high: self.files_high.max(earlier.map_or(0, |earlier| earlier.files_high)), ..self }
    }
}
