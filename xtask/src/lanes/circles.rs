//! No two files import each other, on whatever way round. A file imports another one where it names it by a path that begins with
//! `crate`, `super` or `self`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, ItemMod, UseTree};

use crate::lane::Run;

/// The first file of each package.
const ROOTS: [&str; 6] = [
    "src/lib.rs",
    "core/src/lib.rs",
    "cusim/src/lib.rs",
    "preload/src/lib.rs",
    "runner/src/main.rs",
    "xtask/src/main.rs",
];

pub(crate) fn run(run: &Run) -> Result<()> {
    let mut circles = Vec::new();
    for root in ROOTS {
        let modules = Modules::of(&run.root, Path::new(root))?;
        circles.extend(circles_in(&modules.imports()));
    }
    if circles.is_empty() { Ok(()) } else { bail!("files that import each other: {circles:?}") }
}

/// Modules by their paths, with the files that they are in and the modules that they name.
#[derive(Default)]
struct Modules(BTreeMap<Vec<String>, (PathBuf, Vec<Vec<String>>)>);

impl Modules {
    fn of(folder: &Path, root: &Path) -> Result<Self> {
        let mut modules = Self::default();
        let parent = root.parent().context("a package's first file lies in a folder")?;
        modules.add(folder, root, parent, Vec::new())?;
        Ok(modules)
    }

    /// Adds a file, and those of the modules in it, which lie in `inside`.
    fn add(&mut self, folder: &Path, file: &Path, inside: &Path, module: Vec<String>) -> Result<()> {
        let text = fs::read_to_string(folder.join(file)).with_context(|| file.display().to_string())?;
        let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        let mut named = Named::default();
        named.visit_file(&parsed);
        self.0.insert(module.clone(), (file.to_owned(), named.0));
        for inner in parsed.items.iter().filter_map(outside) {
            let name = inner.ident.to_string();
            let [plain, nested] = [inside.join(format!("{name}.rs")), inside.join(&name).join("mod.rs")];
            let Some(file) = [plain, nested].into_iter().find(|file| folder.join(file).exists()) else { continue };
            self.add(folder, &file, &inside.join(&name), [&module[..], &[name]].concat())?;
        }
        Ok(())
    }

    fn imports(&self) -> BTreeMap<&PathBuf, BTreeSet<&PathBuf>> {
        let others = |module: &[String], named: &Vec<Vec<String>>| {
            let modules = named.iter().filter_map(|path| self.module_of(module, path));
            modules.filter_map(|module| Some(&self.0.get(&module)?.0)).collect::<BTreeSet<_>>()
        };
        let mut imports: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (module, (file, named)) in &self.0 {
            let found = others(module, named);
            imports.entry(file).or_default().extend(found.into_iter().filter(|other| *other != file));
        }
        imports
    }

    /// The innermost module that a path leads to.
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

/// A module in a file of its own that is no test.
fn outside(item: &Item) -> Option<&ItemMod> {
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
struct Named(Vec<Vec<String>>);

impl Named {
    fn add(&mut self, path: Vec<String>) {
        if path.first().is_some_and(|first| ["crate", "super", "self"].contains(&first.as_str())) {
            self.0.push(path);
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

impl<'a> Visit<'a> for Named {
    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.tree(&[], &item.tree);
        }
    }

    /// `pub(super)` names nobody.
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.add(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// Files each of which leads to each other one.
fn circles_in(imports: &BTreeMap<&PathBuf, BTreeSet<&PathBuf>>) -> Vec<BTreeSet<PathBuf>> {
    let reached = |from: &PathBuf| {
        let mut found: BTreeSet<&PathBuf> = BTreeSet::new();
        let mut next: Vec<&PathBuf> = imports.get(from).into_iter().flatten().copied().collect();
        while let Some(file) = next.pop() {
            if found.insert(file) {
                next.extend(imports.get(file).into_iter().flatten());
            }
        }
        found
    };
    let all: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> = imports.keys().map(|file| (*file, reached(file))).collect();
    let leads = |from: &PathBuf, to: &PathBuf| all.get(from).is_some_and(|found| found.contains(to));
    let mut circles: Vec<BTreeSet<PathBuf>> = Vec::new();
    for file in all.keys().filter(|file| leads(file, file)) {
        let circle = all.keys().filter(|other| leads(file, other) && leads(other, file)).map(|file| (*file).clone());
        let circle: BTreeSet<PathBuf> = circle.collect();
        if !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Result<Vec<BTreeSet<PathBuf>>> {
        let folder = tempfile::tempdir()?;
        for (file, text) in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().context("in a folder")?)?;
            fs::write(path, text)?;
        }
        Ok(circles_in(&Modules::of(folder.path(), Path::new("lib.rs"))?.imports()))
    }

    #[test]
    fn files_that_import_each_other_are_a_circle_however_they_name_each_other() -> Result<()> {
        let root = ("lib.rs", "mod a;\nmod b;\n#[cfg(test)]\nmod c;\n");
        let one_way = [
            root,
            ("a/mod.rs", "mod inner;\nuse crate::b::{X, self};"),
            ("b.rs", ""),
            ("a/inner.rs", "pub(super) fn f() {}"),
        ];
        assert_eq!(circles(&one_way)?, Vec::new());
        let round = [
            root,
            ("a/mod.rs", "mod inner;\nuse crate::b;"),
            ("b.rs", "fn f() { crate::a::inner::g() }"),
            ("a/inner.rs", "use super::Y;"),
        ];
        let files = ["a/inner.rs", "a/mod.rs", "b.rs"].map(PathBuf::from);
        assert_eq!(circles(&round)?, [BTreeSet::from(files)]);
        let in_tests = [root, ("a/mod.rs", "use crate::b;"), ("b.rs", "#[cfg(test)]\nmod tests { use crate::a; }")];
        assert_eq!(circles(&in_tests)?, Vec::new());
        Ok(())
    }
}
