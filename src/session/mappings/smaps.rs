//! Parser of the kernel's list of mappings.

use std::ops::Range;

/// A mapping as the kernel lists it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Vma<'a> {
    pub(super) at: Range<usize>,
    access: &'a str,
    /// The path of a file, a name in brackets such as `[heap]`, or nothing.
    pub(super) path: &'a str,
    /// Bytes in physical memory.
    pub(super) resident: u64,
}

impl Vma<'_> {
    pub(super) fn is_executable(&self) -> bool {
        self.access.contains('x')
    }

    pub(super) fn is_accessible(&self) -> bool {
        !self.access.starts_with("---")
    }
}

/// The mappings in the order of their addresses.
pub(super) fn parse(smaps: &str) -> Vec<Vma<'_>> {
    let mut all: Vec<Vma<'_>> = Vec::new();
    for line in smaps.lines() {
        if let Some(vma) = header(line) {
            all.push(vma);
        } else if let (Some(vma), Some(resident)) = (all.last_mut(), kib(line, "Rss:")) {
            vma.resident = resident;
        }
    }
    all
}

/// Parses the first line on a mapping, such as `7f0000000000-7f0000001000 r--p 00000000 08:01 1234    /a file`.
fn header(line: &str) -> Option<Vma<'_>> {
    let mut rest = line;
    let mut word = || {
        let (word, more) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = more.trim_start();
        word
    };
    let (range, access) = (word(), word());
    let (from, to) = range.split_once('-')?;
    let address = |text: &str| usize::from_str_radix(text, 16).ok();
    let at = address(from)?..address(to)?;
    (0..3).for_each(|_| _ = word());
    Some(Vma { at, access, path: rest, resident: 0 })
}

fn kib(line: &str, name: &str) -> Option<u64> {
    let value = line.strip_prefix(name)?.trim().strip_suffix(" kB")?;
    value.parse::<u64>().ok()?.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55d000-55e000 r-xp 00000000 08:01 11                         /usr/bin/app
Size:                  4 kB
Rss:                   4 kB
7f1000-7f3000 ---s 00100000 08:01 12                         /models/my model.safetensors
Rss:                   8 kB
VmFlags: rd mr mw me sd
7f3000-7f4000 rw-p 00000000 00:00 0 
Rss:                   4 kB
7f5000-7f6000 rw-p 00000000 00:00 0                          [heap]
Rss:                   0 kB
";

    #[test]
    fn mappings_have_addresses_access_paths_and_what_is_resident() {
        let found = parse(SMAPS);
        let told: Vec<_> = found.iter().map(|vma| (vma.at.start, vma.at.len(), vma.path, vma.resident)).collect();
        let expected = [
            (0x55d000, 4096, "/usr/bin/app", 4096),
            (0x7f1000, 8192, "/models/my model.safetensors", 8192),
            (0x7f3000, 4096, "", 4096),
            (0x7f5000, 4096, "[heap]", 0),
        ];
        assert_eq!(told, expected);
        assert!(found[0].is_executable() && !found[1].is_accessible() && found[2].is_accessible());
    }

    #[test]
    fn a_text_that_is_cut_anywhere_is_read() {
        let most = (0..SMAPS.len()).map(|length| parse(&SMAPS[..length]).len()).max();
        assert_eq!(most, Some(4));
    }
}
