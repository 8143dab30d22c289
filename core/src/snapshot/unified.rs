//! The host's memory, where it is a GPU's, too.

/// The host's memory when an integrated device's was queried: it is the same memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnifiedMemory {
    /// What the system says; null if it was not read.
    pub system: Option<SystemMemory>,
    /// What the process had of it; null if it was not read.
    pub process: Option<ResidentMemory>,
}

/// Memory of a host (`/proc/meminfo`), in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SystemMemory {
    /// All (`MemTotal`).
    #[serde(rename = "total_bytes")]
    pub total: u64,
    /// What programs can get without swapping, with the page cache that Linux gives back (`MemAvailable`).
    #[serde(rename = "available_bytes")]
    pub available: u64,
    /// What nothing uses, not even the page cache (`MemFree`).
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
    /// The part of them that belongs to mapped files: it is page cache.
    #[serde(rename = "mapped_file_bytes")]
    pub files: u64,
}

impl ResidentMemory {
    /// Resident bytes that are no page cache.
    pub fn own(self) -> u64 {
        self.resident.saturating_sub(self.files)
    }
}

impl SystemMemory {
    /// From the text of `/proc/meminfo`; `None` if a figure is missing, as `MemAvailable` is before Linux 3.14.
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
