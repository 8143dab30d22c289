//! Which module an address lies in, found by halving.

use std::collections::BTreeSet;

use super::stacks::Module;

/// The addresses of modules, for many questions. Where modules overlap, the first of them has it.
#[derive(Debug, Default)]
pub(crate) struct ModuleSpans {
    /// From each address on up to the next one: which module, if any. Sorted.
    starts: Vec<(u64, Option<usize>)>,
}

impl ModuleSpans {
    pub(crate) fn of(modules: &[Module]) -> Self {
        let ranges = || modules.iter().map(|module| &module.range).enumerate().filter(|(_, range)| !range.is_empty());
        let begins = ranges().map(|(index, range)| (range.start, true, index));
        let ends = ranges().map(|(index, range)| (range.end, false, index));
        let mut edges: Vec<(u64, bool, usize)> = begins.chain(ends).collect();
        edges.sort_unstable();
        let (mut open, mut starts) = (BTreeSet::new(), Vec::new());
        for (address, begins, index) in edges {
            if begins {
                open.insert(index)
            } else {
                open.remove(&index)
            };
            starts.push((address, open.first().copied()));
        }
        Self { starts }
    }

    /// The index of the module that holds an address.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let after = self.starts.partition_point(|(start, _)| *start <= address);
        self.starts.get(after.checked_sub(1)?)?.1
    }
}

const NT_GNU_BUILD_ID: u32 = 3;

/// The GNU build-id among ELF notes: each is three 32-bit words (name length, description length, type), the name and the
/// description, both padded to four bytes.
pub(crate) fn build_id(mut notes: &[u8]) -> Option<&[u8]> {
    while let Some((header, rest)) = notes.split_at_checked(12) {
        let word = |i: usize| header.get(i * 4..i * 4 + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let (name_length, length) = (word(0)? as usize, word(1)? as usize);
        let (name, rest) = rest.split_at_checked(name_length.checked_next_multiple_of(4)?)?;
        let description = rest.get(..length)?;
        if word(2)? == NT_GNU_BUILD_ID && name.starts_with(b"GNU\0") {
            return Some(description);
        }
        notes = rest.get(length.checked_next_multiple_of(4)?..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_first_module_that_holds_it() {
        let module = |range| Module { path: String::new(), build_id: Vec::new(), base: 0, range };
        #[expect(clippy::reversed_empty_ranges, reason = "a damaged file may hold one")]
        let ranges = [10..20, 15..30, 5..5, 9..3, 0..40, 20..25, 50..60, 60..u64::MAX];
        let modules: Vec<Module> = ranges.into_iter().map(module).collect();
        let spans = ModuleSpans::of(&modules);
        for address in (0..70).chain([u64::MAX - 1, u64::MAX]) {
            let first = modules.iter().position(|module| module.range.contains(&address));
            assert_eq!(spans.find(address), first, "{address}");
        }
    }

    #[test]
    fn a_build_id_is_found_behind_other_notes_and_damage_is_refused() {
        let mut notes = Vec::new();
        for (kind, name, text) in [(1u32, b"ABC\0", b"xyz".as_slice()), (3, b"GNU\0", &[1, 2, 3, 4, 5])] {
            notes.extend([4u32, text.len() as u32, kind].iter().flat_map(|w| w.to_ne_bytes()));
            notes.extend_from_slice(name);
            notes.extend_from_slice(text);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(build_id(&notes), Some([1, 2, 3, 4, 5].as_slice()));
        (0..notes.len() - 8).for_each(|n| assert_eq!(build_id(&notes[..n]), None));
        assert_eq!(build_id(&[0xff; 64]), None);
    }
}
