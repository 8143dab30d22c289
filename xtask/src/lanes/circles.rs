//! Checks that there are no import cycles between files. A file imports another one if it names it by a path that
//! begins with `crate`, `super` or `self`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, ItemMod, UseTree};

use crate::lane::Run;

const ROOTS: [&str; 7] = [
    "cargo-memtrace/src/lib.rs",
    "src/lib.rs",
    "core/src/lib.rs",
    "cusim/src/lib.rs",
    "preload/src/lib.rs",
    "runner/src/lib.rs",
    "xtask/src/main.rs",
];

pub(crate) fn run(run: &Run) -> Result<()> {
    let mut found = Vec::new();
    for root in ROOTS {
        let modules = Modules::of(&run.root, Path::new(root))?;
        let circles = in_circles(modules.imports());
        found.extend(circles.iter().map(|(file, imports)| format!("{} {imports:?}", file.display())));
    }
    ensure!(found.is_empty(), "files import each other in a circle; move what they share:\n{}", found.join("\n"));
    Ok(())
}

/// For each file, the files that it imports.
type Imports<'a> = BTreeMap<&'a PathBuf, BTreeSet<&'a PathBuf>>;

/// Modules by path, each with its file and the paths that the module names.
#[derive(Default)]
struct Modules(BTreeMap<Vec<String>, (PathBuf, Vec<Vec<String>>)>);

impl Modules {
    fn of(folder: &Path, root: &Path) -> Result<Self> {
        let mut modules = Self::default();
        let parent = root.parent().context("a package's first file lies in a folder")?;
        modules.add(folder, root, parent, Vec::new())?;
        Ok(modules)
    }

    /// Adds a file and its submodules, whose files lie in `inside`.
    fn add(&mut self, folder: &Path, file: &Path, inside: &Path, module: Vec<String>) -> Result<()> {
        let text = fs::read_to_string(folder.join(file)).with_context(|| file.display().to_string())?;
        let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        let mut paths = LocalPaths::default();
        paths.visit_file(&parsed);
        self.0.insert(module.clone(), (file.to_owned(), paths.paths));
        for inner in parsed.items.iter().filter_map(in_another_file) {
            let name = inner.ident.to_string();
            let [plain, nested] = [inside.join(format!("{name}.rs")), inside.join(&name).join("mod.rs")];
            let Some(file) = [plain, nested].into_iter().find(|file| folder.join(file).exists()) else { continue };
            self.add(folder, &file, &inside.join(&name), [&module[..], &[name]].concat())?;
        }
        Ok(())
    }

    fn imports(&self) -> Imports<'_> {
        let mut imports = Imports::new();
        for (module, (file, paths)) in &self.0 {
            let modules = paths.iter().filter_map(|path| self.module_of(module, path));
            let files = modules.filter_map(|module| Some(&self.0.get(&module)?.0));
            imports.entry(file).or_default().extend(files.filter(|other| *other != file));
        }
        imports
    }

    /// The innermost module on a path.
    fn module_of(&self, from: &[String], path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        let mut at = if first == "crate" { Vec::new() } else { from.to_vec() };
        let mut rest = if first == "super" { path } else { rest };
        while let Some(("super", after)) = rest.split_first().map(|(name, after)| (name.as_str(), after)) {
            at.pop()?;
            rest = after;
        }
        for name in rest {
            let inner = [&at[..], std::slice::from_ref(name)].concat();
            if !self.0.contains_key(&inner) {
                break;
            }
            at = inner;
        }
        Some(at)
    }
}

/// A `mod name;` that is not for tests.
fn in_another_file(item: &Item) -> Option<&ItemMod> {
    match item {
        Item::Mod(module) if module.content.is_none() && !is_for_tests(&module.attrs) => Some(module),
        _ => None,
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| {
        let list = attribute.meta.require_list().ok().filter(|list| list.path.is_ident("cfg"));
        list.is_some_and(|list| list.tokens.to_string().contains("test"))
    };
    attributes.iter().any(is_test)
}

/// Paths that begin with `crate`, `super` or `self`, outside of tests.
#[derive(Default)]
struct LocalPaths {
    paths: Vec<Vec<String>>,
    /// The number of inline modules around the item.
    depth: usize,
}

impl LocalPaths {
    fn add(&mut self, mut path: Vec<String>) {
        let leaves_inline_modules = path.len() > self.depth && path[..=self.depth].iter().all(|name| name == "super");
        match path.first().map(String::as_str) {
            Some("crate") => self.paths.push(path),
            Some("super" | "self") if self.depth == 0 => self.paths.push(path),
            Some("super") if leaves_inline_modules => self.paths.push(path.split_off(self.depth)),
            _ => {}
        }
    }

    fn tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            UseTree::Name(name) => self.add(with(&name.ident)),
            UseTree::Rename(name) => self.add(with(&name.ident)),
            UseTree::Glob(_) => self.add(before.to_vec()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
        }
    }
}

impl<'a> Visit<'a> for LocalPaths {
    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        if !is_for_tests(&module.attrs) {
            self.depth += 1;
            visit::visit_item_mod(self, module);
            self.depth -= 1;
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.tree(&[], &item.tree);
        }
    }

    /// `pub(super)` imports nothing.
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.add(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// The imports of files on import cycles, and of files between two cycles. A file is removed if it imports none of the
/// remaining files, or if none of these imports it. This is repeated until nothing changes.
fn in_circles(mut imports: Imports<'_>) -> Imports<'_> {
    loop {
        let before = imports.len();
        let imported: BTreeSet<&PathBuf> = imports.values().flatten().copied().collect();
        imports.retain(|file, imported_by_file| imported.contains(file) && !imported_by_file.is_empty());
        if imports.len() == before {
            return imports;
        }
        let left: BTreeSet<&PathBuf> = imports.keys().copied().collect();
        imports.values_mut().for_each(|files| files.retain(|file| left.contains(file)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Result<BTreeSet<PathBuf>> {
        let folder = tempfile::tempdir()?;
        for (file, text) in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().context("in a folder")?)?;
            fs::write(path, text)?;
        }
        let modules = Modules::of(folder.path(), Path::new("lib.rs"))?;
        Ok(in_circles(modules.imports()).into_keys().cloned().collect())
    }

    #[test]
    fn an_import_cycle_is_found_however_the_files_name_each_other() -> Result<()> {
        let root = ("lib.rs", "mod a;\nmod b;\n#[cfg(test)]\nmod c;\n");
        let one_way = [
            root,
            ("a/mod.rs", "mod inner;\nuse crate::b::{X, self};"),
            ("b.rs", ""),
            ("a/inner.rs", "pub(super) fn f() {}"),
        ];
        assert_eq!(circles(&one_way)?, BTreeSet::new());
        let round = [
            root,
            ("a/mod.rs", "mod inner;\nuse crate::b;"),
            ("b.rs", "fn f() { crate::a::inner::g() }"),
            ("a/inner.rs", "use super::Y;"),
        ];
        let files = ["a/inner.rs", "a/mod.rs", "b.rs"].map(PathBuf::from);
        assert_eq!(circles(&round)?, BTreeSet::from(files));
        let in_its_own_file = [
            root,
            ("a/mod.rs", "use crate::b;"),
            ("b.rs", "mod own { mod inner { use super::X; use super::super::Y; use self::Z; } }"),
        ];
        assert_eq!(circles(&in_its_own_file)?, BTreeSet::new());
        let beyond_inline_modules = [root, ("a/mod.rs", "use crate::b;"), ("b.rs", "mod own { use super::super::a; }")];
        assert_eq!(circles(&beyond_inline_modules)?, BTreeSet::from(["a/mod.rs", "b.rs"].map(PathBuf::from)));
        let in_tests = [root, ("a/mod.rs", "use crate::b;"), ("b.rs", "#[cfg(test)]\nmod tests { use crate::a; }")];
        assert_eq!(circles(&in_tests)?, BTreeSet::new());
        Ok(())
    }
}
