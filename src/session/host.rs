//! The host's memory, for GPUs that use it as their own.

use memtrace_core::snapshot::{ResidentMemory, SystemMemory, UnifiedMemory};

use super::apart;
use super::process::host_memory;

/// The expected size of `/proc/meminfo`, in bytes.
const ROOM: usize = 4 << 10;

/// The current figures. A figure that the kernel does not report is `None`.
pub(super) fn unified_memory() -> UnifiedMemory {
    let system = apart::read("/proc/meminfo", ROOM, SystemMemory::of_meminfo);
    let process = host_memory(0).map(|now| ResidentMemory { resident: now.resident, files: now.files });
    UnifiedMemory { system, process }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_and_the_process_are_read_together() {
        let UnifiedMemory { system, process } = unified_memory();
        let (system, process) = (system.unwrap(), process.unwrap());
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let total = SystemMemory::of_meminfo(&text).unwrap().total;
        assert!(system.total == total && system.available <= total && system.free <= total, "{system:?}");
        assert!((1..total).contains(&process.own()) && process.files > 0, "{process:?}");
    }
}
