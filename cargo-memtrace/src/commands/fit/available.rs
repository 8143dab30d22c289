//! How much of this host's memory programs can get now.

use std::path::Path;

use memtrace_core::analysis::Card;
use memtrace_core::snapshot::SystemMemory;

use crate::failure::CommandFailure;

/// The file in which Linux reports the host's memory.
const MEMINFO: &str = "/proc/meminfo";

/// An integrated GPU, with the memory of this host that programs can get now.
pub(super) fn available_now(name: &str) -> Result<Card, CommandFailure> {
    available(Path::new(MEMINFO), name)
}

fn available(meminfo: &Path, name: &str) -> Result<Card, CommandFailure> {
    let system = std::fs::read_to_string(meminfo).ok().and_then(|text| SystemMemory::of_meminfo(&text));
    let system = system.ok_or_else(|| {
        CommandFailure::Undecided(vec![
            "/proc/meminfo does not say how much of the host's memory is available".to_owned(),
        ])
    })?;
    Ok(Card { source: "MemAvailable now", ..Card::of_host(name, system.available) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_counts_and_without_a_reading_nobody_knows() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("meminfo");
        let of = |text: &str| {
            std::fs::write(&file, text).unwrap();
            available(&file, "NVIDIA GB10")
        };
        let card = of("MemTotal: 4096 kB\nMemFree: 2 kB\nMemAvailable: 1024 kB\n").unwrap();
        assert_eq!((card.name.as_str(), card.memory, card.unified), ("NVIDIA GB10", 1 << 20, true));
        assert!(matches!(of("MemTotal: 4096 kB\n"), Err(CommandFailure::Undecided(_))));
        assert!(matches!(available(&folder.path().join("none"), "a"), Err(CommandFailure::Undecided(_))));
    }
}
