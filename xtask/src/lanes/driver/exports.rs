//! The table of all names that drivers export: `src/hook/cuda/exports.txt`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

use super::symbols::Names;
use crate::lane::Run;

const FILE: &str = "src/hook/cuda/exports.txt";

/// What memtrace does about each name, which is a heading of the file.
#[derive(Debug)]
pub(super) struct Exports(BTreeMap<String, String>);

impl Exports {
    pub(super) fn read(run: &Run) -> Result<Self> {
        Self::parse(&run.shell.read_file(run.root.join(FILE))?)
    }

    fn parse(text: &str) -> Result<Self> {
        let (mut heading, mut table) = (None, BTreeMap::new());
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some(named) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                let is_known = ["hooked", "changes no memory"].contains(&named) || named.starts_with("not seen: ");
                ensure!(is_known, "{FILE} has the heading {named}");
                heading = Some(named);
                continue;
            }
            for name in line.split_whitespace() {
                let heading = heading.context("a name comes before the first heading")?;
                ensure!(table.insert(name.to_owned(), heading.to_owned()).is_none(), "{FILE} has {name} twice");
            }
        }
        Ok(Self(table))
    }

    pub(super) fn hooked(&self) -> BTreeSet<&str> {
        self.0.iter().filter(|(_, heading)| *heading == "hooked").map(|(name, _)| name.as_str()).collect()
    }

    /// The number of names whose heading begins with this text.
    pub(super) fn count(&self, heading: &str) -> usize {
        self.0.values().filter(|of| of.starts_with(heading)).count()
    }

    /// Names that the table lacks.
    pub(super) fn missing<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
        names.filter(|name| !self.0.contains_key(*name)).collect()
    }
}

pub(super) fn names(exports: &Names) -> impl Iterator<Item = &str> {
    exports.values().flatten().map(String::as_str)
}

/// The functions that a header declares.
pub(super) fn declared(header: &str) -> BTreeSet<&str> {
    let after = header.split("CUresult CUDAAPI ").skip(1);
    after
        .filter_map(|text| text.split_once('('))
        .map(|(name, _)| name.trim())
        .filter(|name| name.starts_with("cu"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# about\n[hooked]\ncuA cuB\n[not seen: a reason]\ncuC\n[changes no memory]\ncuD\ncuE\n";

    #[test]
    fn a_name_that_the_table_lacks_is_found() {
        let exports = Exports::parse(TABLE).unwrap();
        assert_eq!(exports.hooked().into_iter().collect::<Vec<_>>(), ["cuA", "cuB"]);
        assert_eq!((exports.count("not seen"), exports.count("changes no memory")), (1, 2));
        assert_eq!(exports.missing(["cuA", "cuNew", "cuE"].into_iter()), ["cuNew"]);
    }

    #[test]
    fn a_name_has_one_heading_that_is_known() {
        assert!(Exports::parse("cuA\n").is_err());
        assert!(Exports::parse("[hooked]\ncuA\n[changes no memory]\ncuA\n").is_err());
        assert!(Exports::parse("[hocked]\ncuA\n").is_err());
    }

    #[test]
    fn a_headers_functions_are_found() {
        let header = "CUresult CUDAAPI cuA(int);\n__CUDA_DEPRECATED CUresult CUDAAPI cuB (\n  int);\ntypedef CUresult (CUDAAPI *p)(int);";
        assert_eq!(declared(header).into_iter().collect::<Vec<_>>(), ["cuA", "cuB"]);
    }
}
