//! Compares the probe's look-ups without memtrace and with it. They must have the same result, status and library. If
//! the driver returns a function that has a hook, memtrace must return this hook.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use super::symbols::Names;

/// The data for comparing the probe's two runs.
pub(super) struct Expected<'e> {
    pub(super) exports: &'e Names,
    /// The names of functions that must have hooks.
    pub(super) hooked: &'e BTreeSet<&'e str>,
    /// The file that contains memtrace, and memtrace's hooks by address.
    pub(super) memtrace: &'e str,
    pub(super) hooks: &'e Names,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Compared {
    pub(super) lookups: usize,
    pub(super) hooks: usize,
    /// How often `RTLD_NEXT` returned the driver's own function instead of its hook.
    pub(super) past: usize,
    /// Lines that differ otherwise.
    pub(super) wrong: Vec<String>,
}

/// A line of the probe: the kind of look-up, the name, the place of the function, and results.
struct Line<'t> {
    how: &'t str,
    place: &'t str,
    rest: &'t str,
}

impl<'t> Line<'t> {
    fn of(line: &'t str) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let (how, _name, place) = (words.next()?, words.next()?, words.next()?);
        Some(Self { how, place, rest: words.next()? })
    }
}

pub(super) fn compare(plain: &str, ours: &str, expected: &Expected<'_>) -> Result<Compared> {
    let (count, same) = (plain.lines().count(), ours.lines().count());
    ensure!(count == same, "{count} look-ups without memtrace, {same} with it");
    let mut compared = Compared::default();
    for (plain, ours) in plain.lines().zip(ours.lines()) {
        let line = Line::of(plain).zip(Line::of(ours)).context("the probe prints four words")?;
        compared.lookups += 1;
        if !compared.is_right(&line.0, &line.1, expected) {
            compared.wrong.push(format!("{plain}; with memtrace {ours}"));
        }
    }
    Ok(compared)
}

impl Compared {
    fn is_right(&mut self, plain: &Line<'_>, ours: &Line<'_>, expected: &Expected<'_>) -> bool {
        let names = at(plain.place, "libcuda.so.1").and_then(|address| expected.exports.get(&address));
        let has_hook = names.is_some_and(|names| names.iter().any(|name| expected.hooked.contains(name.as_str())));
        if plain.how != ours.how || plain.rest != ours.rest {
            return false;
        }
        if !has_hook {
            return plain.place == ours.place;
        }
        if plain.how == "next" && plain.place == ours.place {
            self.past += 1;
            return true;
        }
        self.hooks += 1;
        let hook = at(ours.place, expected.memtrace).and_then(|address| expected.hooks.get(&address));
        hook.zip(names).is_some_and(|(hook, names)| !hook.is_disjoint(names))
    }
}

/// The offset of a place in this file.
fn at(place: &str, file: &str) -> Option<u64> {
    u64::from_str_radix(place.strip_prefix(file)?.strip_prefix('+')?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str =
        "cuInit - - 100\ndlsym cuA libcuda.so.1+10 fine\nv2-13000-0 cuB libcuda.so.1+20 0 0\ndlsym cuC null error";

    fn compared(ours: &str) -> Compared {
        let names = |pairs: &[(u64, &str)]| -> Names {
            pairs.iter().map(|(at, name)| (*at, BTreeSet::from([(*name).to_owned()]))).collect()
        };
        let (exports, hooks) = (names(&[(0x10, "cuA"), (0x20, "cuB")]), names(&[(0x1, "cuA"), (0x2, "cuOther")]));
        let hooked = BTreeSet::from(["cuA"]);
        let expected = Expected { exports: &exports, hooked: &hooked, memtrace: "ours.so", hooks: &hooks };
        compare(PLAIN, ours, &expected).unwrap()
    }

    #[test]
    fn a_hook_is_right_where_the_driver_gives_its_function() {
        let found = compared(&PLAIN.replace("libcuda.so.1+10", "ours.so+1"));
        assert_eq!(found, Compared { lookups: 4, hooks: 1, ..Compared::default() });
    }

    #[test]
    fn every_other_difference_is_wrong() {
        let hooked = PLAIN.replace("libcuda.so.1+10", "ours.so+1");
        for (from, to) in [
            ("ours.so+1", "libcuda.so.1+10"),
            ("ours.so+1", "ours.so+2"),
            ("+20", "+30"),
            ("0 0", "0 1"),
            ("null error", "null fine"),
            ("libcuda.so.1+20", "ours.so+1"),
            ("100", "0"),
        ] {
            assert_eq!(compared(&hooked.replace(from, to)).wrong.len(), 1, "{from} {to}");
        }
    }
}
