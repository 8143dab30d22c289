//! The host's memory where it is also the GPU's.

/// The host's memory, read when an integrated device's memory was queried. Both are the same memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnifiedMemory {
    /// Memory of the whole host; null if it was not read.
    pub system: Option<SystemMemory>,
    /// Resident memory of this process; null if it was not read.
    pub process: Option<ResidentMemory>,
}

/// Memory of a host (`/proc/meminfo`), in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SystemMemory {
    /// Total bytes (`MemTotal`).
    #[serde(rename = "total_bytes")]
    pub total: u64,
    /// Bytes that programs can get without swapping, including the page cache that Linux gives back (`MemAvailable`).
    #[serde(rename = "available_bytes")]
    pub available: u64,
    /// Bytes that nothing uses, not even the page cache (`MemFree`).
    #[serde(rename = "free_bytes")]
    pub free: u64,
}

/// Resident memory of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ResidentMemory {
    /// Resident bytes.
    #[serde(rename = "resident_bytes")]
    pub resident: u64,
    /// The part of the resident bytes that belongs to mapped files, which is page cache.
    #[serde(rename = "mapped_file_bytes")]
    pub files: u64,
}

impl ResidentMemory {
    /// Resident bytes that are not page cache.
    pub fn own(self) -> u64 {
        self.resident.saturating_sub(self.files)
    }
}

impl SystemMemory {
    /// Parses the text of `/proc/meminfo`; `None` if a value is missing, as `MemAvailable` is before Linux 3.14.
    pub fn of_meminfo(text: &str) -> Option<Self> {
        let bytes = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1 << 10)
        };
        Some(Self { total: bytes("MemTotal")?, available: bytes("MemAvailable")?, free: bytes("MemFree")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_kib_and_a_missing_line_is_no_zero() {
        let text =
            "MemTotal:       125536136 kB\nMemFree:         2101248 kB\nMemAvailable:   94371840 kB\nCached: 5 kB\n";
        let read = SystemMemory { total: 125_536_136 << 10, available: 90 << 30, free: 2_101_248 << 10 };
        assert_eq!(SystemMemory::of_meminfo(text), Some(read));
        for line in text.lines().take(3) {
            assert_eq!(SystemMemory::of_meminfo(&text.replace(line, "")), None, "{line}");
        }
        assert_eq!(SystemMemory::of_meminfo(&text.replace("125536136", "99999999999999999999")), None);
        assert_eq!(SystemMemory::of_meminfo(&text.replace("125536136", "18446744073709551615")), None);
    }

    #[test]
    fn mapped_files_are_not_the_processes_own() {
        assert_eq!(ResidentMemory { resident: 10, files: 3 }.own(), 7);
        assert_eq!(ResidentMemory { resident: 3, files: 10 }.own(), 0);
    }
}
