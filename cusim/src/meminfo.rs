//! The host's memory, which an integrated GPU uses. It is read without the heap, because the program under test may
//! watch the heap.

use std::fs::File;
use std::io::Read;

/// All memory of the host, in bytes; 0 if it is not known.
pub(crate) fn total() -> u64 {
    read(|text| bytes(text, "MemTotal"))
}

/// The page cache, without the programs' shared memory, which Linux does not give back.
pub(crate) fn page_cache() -> u64 {
    read(|text| (bytes(text, "Buffers") + bytes(text, "Cached")).saturating_sub(bytes(text, "Shmem")))
}

fn read(figure: impl FnOnce(&str) -> u64) -> u64 {
    let (mut text, mut length) = ([0; 8 << 10], 0);
    let Ok(mut file) = File::open("/proc/meminfo") else { return 0 };
    while let Ok(more @ 1..) = file.read(&mut text[length..]) {
        length += more;
    }
    std::str::from_utf8(&text[..length]).map_or(0, figure)
}

/// Parses a line such as `MemTotal:  16 kB`, in bytes.
fn bytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map_or(0, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_in_kib_under_their_whole_names() {
        let text = "MemTotal:   16 kB\nSwapCached:  7 kB\nCached:  5 kB\n";
        assert_eq!(["MemTotal", "Cached", "Shmem", "Mem"].map(|name| bytes(text, name)), [16 << 10, 5 << 10, 0, 0]);
        assert!((1 << 20..1 << 50).contains(&total()) && page_cache() < total());
    }
}
