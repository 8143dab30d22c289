//! Uniqueness of type names: no struct, enum, union, trait or type alias of the packages has the name of another one, so
//! that a search for a name finds one definition. Test modules count; test programs, `tests` folders, associated types and
//! types that a macro defines do not. Definitions in one file under different `cfg` attributes count as one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use syn::Attribute;
use syn::visit::{self, Visit};

use crate::lane::Run;

const FOLDERS: [&str; 8] =
    ["src", "cargo-memtrace/src", "core/src", "cusim/src", "cusim/libraries", "preload/src", "runner/src", "xtask/src"];

/// Names that several types may share, each with the reason.
const EXCEPTIONS: &[(&str, &str)] =
    &[("Error", "the error type of each library; that of memtrace wraps that of memtrace-core")];

pub(crate) fn run(run: &Run) -> Result<()> {
    let mut definitions = Definitions::default();
    for folder in FOLDERS {
        definitions.add_folder(&run.root.join(folder))?;
    }
    let duplicates = definitions.duplicates();
    let new: Vec<_> =
        duplicates.iter().filter(|(name, _)| EXCEPTIONS.iter().all(|(known, _)| known != *name)).collect();
    ensure!(new.is_empty(), "types with the same name; rename all but one after what is special about them: {new:#?}");
    let stale: Vec<_> = EXCEPTIONS.iter().filter(|(name, _)| !duplicates.contains_key(*name)).collect();
    ensure!(stale.is_empty(), "exceptions without a duplicate in type_names.rs: {stale:?}");
    Ok(())
}

/// Files by type name: one entry per definition.
#[derive(Default)]
struct Definitions {
    files: BTreeMap<String, Vec<PathBuf>>,
    /// The file that is being read.
    file: PathBuf,
}

impl Definitions {
    fn add_folder(&mut self, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("tests") {
                self.add_folder(&path)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                self.add_file(path)?;
            }
        }
        Ok(())
    }

    fn add_file(&mut self, file: PathBuf) -> Result<()> {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        self.file = file;
        self.visit_file(&parsed);
        Ok(())
    }

    fn add(&mut self, name: &syn::Ident, attributes: &[Attribute]) {
        let files = self.files.entry(name.to_string()).or_default();
        let is_alternative = attributes.iter().any(|attribute| attribute.path().is_ident("cfg"));
        if !is_alternative || !files.contains(&self.file) {
            files.push(self.file.clone());
        }
    }

    fn duplicates(&self) -> BTreeMap<&str, &[PathBuf]> {
        let several = self.files.iter().filter(|(_, files)| files.len() > 1);
        several.map(|(name, files)| (name.as_str(), files.as_slice())).collect()
    }
}

impl<'a> Visit<'a> for Definitions {
    fn visit_item(&mut self, item: &'a syn::Item) {
        match item {
            syn::Item::Struct(item) => self.add(&item.ident, &item.attrs),
            syn::Item::Enum(item) => self.add(&item.ident, &item.attrs),
            syn::Item::Union(item) => self.add(&item.ident, &item.attrs),
            syn::Item::Trait(item) => self.add(&item.ident, &item.attrs),
            syn::Item::Type(item) => self.add(&item.ident, &item.attrs),
            _ => {}
        }
        visit::visit_item(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duplicates(files: &[&str]) -> Result<Vec<String>> {
        let folder = tempfile::tempdir()?;
        for (number, text) in files.iter().enumerate() {
            fs::write(folder.path().join(format!("{number}.rs")), text)?;
        }
        let mut definitions = Definitions::default();
        definitions.add_folder(folder.path())?;
        Ok(definitions.duplicates().into_keys().map(str::to_owned).collect())
    }

    #[test]
    fn a_name_of_two_types_is_found_whatever_kind_they_are() -> Result<()> {
        assert_eq!(duplicates(&["struct A;", "mod inner { pub enum A {} }"])?, ["A"]);
        assert_eq!(duplicates(&["trait A {}\nunion B { x: u8 }", "type A = u8;\nfn f() { struct B; }"])?, ["A", "B"]);
        assert_eq!(duplicates(&["struct A;", "trait T { type A; }\nimpl T for u8 { type A = u8; }"])?, [""; 0]);
        Ok(())
    }

    #[test]
    fn alternatives_under_cfg_in_one_file_are_one_type() -> Result<()> {
        let alternatives = "#[cfg(debug_assertions)]\nstruct A(u8);\n#[cfg(not(debug_assertions))]\nstruct A;";
        assert_eq!(duplicates(&[alternatives])?, [""; 0]);
        assert_eq!(duplicates(&[alternatives, "struct A;"])?, ["A"]);
        Ok(())
    }
}
