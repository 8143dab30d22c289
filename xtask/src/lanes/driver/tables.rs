//! Tables of function pointers that CUDA's libraries keep: words of their data that point into the driver or memtrace.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use super::symbols::Names;

/// The probe's name for memory outside every library.
pub(super) const HEAP: &str = "heap";

/// Pointers in one library, or in C's heap, at the end of the probe.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) hooks: usize,
    /// Pointers to functions of the driver that have no hook.
    pub(super) driver: usize,
    /// Functions with a hook to which a word points directly, past the hook.
    pub(super) past: BTreeSet<String>,
}

/// Reads the tables by library from the probe's output.
pub(super) fn read(
    text: &str,
    exports: &Names,
    hooked: &BTreeSet<&str>,
    hooks: &Names,
) -> Result<BTreeMap<String, Table>> {
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("end ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, library, kind, address] = words[..] else { anyhow::bail!("the probe printed {line}") };
        let address = u64::from_str_radix(address, 16).with_context(|| line.to_owned())?;
        let table = tables.entry(library.to_owned()).or_default();
        if kind == "memtrace" {
            table.hooks += usize::from(hooks.contains_key(&address));
            continue;
        }
        let names = exports.get(&address).into_iter().flatten();
        match names.clone().find(|name| hooked.contains(name.as_str())) {
            Some(name) => _ = table.past.insert(name.clone()),
            None => table.driver += usize::from(names.count() > 0),
        }
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_leads_past_a_hook_is_named() {
        let names = |pairs: &[(u64, &str)]| -> Names {
            pairs.iter().map(|(at, name)| (*at, BTreeSet::from([(*name).to_owned()]))).collect()
        };
        let exports = names(&[(0x10, "cuA"), (0x20, "cuB")]);
        let text = "returned cudaMalloc 100\nstart lib driver 10\nend lib memtrace 1\nend lib driver 10\nend lib driver 20\nend lib driver 21";
        let tables = read(text, &exports, &BTreeSet::from(["cuA"]), &names(&[(1, "cuA")])).unwrap();
        let table = Table { hooks: 1, driver: 1, past: BTreeSet::from(["cuA".to_owned()]) };
        assert_eq!(tables, BTreeMap::from([("lib".to_owned(), table)]));
    }
}
