//! Checks that all packages have one version and require it of each other, and that the changelog has it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;
use xshell::cmd;

use crate::checks::Checks;
use crate::lane::Run;
use crate::lanes::PUBLISHED;

#[derive(Deserialize)]
pub(super) struct Metadata {
    pub(super) packages: Vec<Package>,
}

#[derive(Clone, Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) license: Option<String>,
    pub(super) manifest_path: String,
    pub(super) repository: Option<String>,
    /// `None` permits any registry, an empty list none.
    publish: Option<Vec<String>>,
    dependencies: Vec<Dependency>,
}

#[derive(Clone, Deserialize)]
struct Dependency {
    name: String,
    req: String,
    kind: Option<String>,
    path: Option<String>,
    #[serde(default)]
    features: Vec<String>,
}

impl Package {
    /// The name of the file that the registry gets.
    pub(super) fn file(&self) -> String {
        format!("{}-{}.crate", self.name, self.version)
    }

    /// The features with which its tests depend on the package itself. Its file does not have this dependency.
    pub(super) fn tested_features(&self) -> String {
        let itself = self.dependencies.iter().filter(|dependency| dependency.name == self.name);
        itself.flat_map(|dependency| dependency.features.clone()).collect::<Vec<_>>().join(",")
    }
}

/// Checks the versions, and returns the version.
pub(super) fn check(run: &Run, checks: &mut Checks) -> Result<String> {
    let packages = published(run)?;
    let changelog = run.shell.read_file(run.root.join("CHANGELOG.md"))?;
    let version = packages.first().context("no package is published")?.version.clone();
    let problems = problems(&packages, &changelog);
    problems.iter().for_each(|problem| checks.fail(problem));
    checks.that(&format!("version {version} in {} packages and CHANGELOG.md", packages.len()), problems.is_empty());
    if changelog.contains(&format!("## [{version}], not released yet")) {
        println!("note  CHANGELOG.md says that {version} is not released yet: give it its date before the tag");
    }
    Ok(version)
}

/// The packages for the registry.
fn published(run: &Run) -> Result<Vec<Package>> {
    let metadata = cmd!(run.shell, "cargo metadata --no-deps --locked --format-version 1").quiet().read()?;
    let Metadata { packages } = serde_json::from_str(&metadata)?;
    Ok(packages.into_iter().filter(|package| package.publish.is_none()).collect())
}

/// These packages in the order in which they can be published: each after the packages on which it depends.
pub(super) fn in_order(run: &Run) -> Result<Vec<Package>> {
    let packages = published(run)?;
    let place = |name: &String| packages.iter().find(|package| package.name == *name).cloned();
    Ok(sorted(&packages)?.iter().filter_map(place).collect())
}

fn sorted(packages: &[Package]) -> Result<Vec<String>> {
    let mut needs: BTreeMap<&str, Vec<&str>> = packages.iter().map(|package| (&*package.name, own(package))).collect();
    let mut order: Vec<String> = Vec::new();
    while !needs.is_empty() {
        let is_free = |needed: &Vec<&str>| needed.iter().all(|name| order.iter().any(|done| done == name));
        let next = needs.iter().find(|(_, needed)| is_free(needed)).map(|(name, _)| *name);
        let next = next.context("packages depend on each other in a circle")?;
        needs.remove(next);
        order.push(next.to_owned());
    }
    Ok(order)
}

/// Dependencies in this repository. Dependencies for tests are left out, because they are not published.
fn own(package: &Package) -> Vec<&str> {
    let of_users = package.dependencies.iter().filter(|it| it.path.is_some() && it.kind.as_deref() != Some("dev"));
    of_users.map(|dependency| &*dependency.name).collect()
}

fn problems(packages: &[Package], changelog: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let Some(version) = packages.first().map(|package| &package.version) else { return problems };
    for package in packages {
        let name = &package.name;
        if package.version != *version {
            problems.push(format!("{name} has version {}, not {version}", package.version));
        }
        if !PUBLISHED.contains(&name.as_str()) {
            problems.push(format!("{name} is published, but the lane `packaged` does not try it"));
        }
        if package.repository != packages[0].repository {
            problems.push(format!("{name} names another repository"));
        }
        let own = package.dependencies.iter().filter(|it| it.path.is_some() && it.kind.as_deref() != Some("dev"));
        for needed in own.filter(|needed| needed.req != format!("^{version}") && needed.req != format!("={version}")) {
            problems.push(format!("{name} asks for {} {}, not {version}", needed.name, needed.req));
        }
    }
    let heading = format!("## [{version}]");
    if !changelog.lines().any(|line| line.starts_with(&heading)) {
        problems.push(format!("CHANGELOG.md has no heading {heading}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, needs: &[(&str, &str, Option<&str>)]) -> Package {
        let dependency = |(name, req, kind): &(&str, &str, Option<&str>)| Dependency {
            name: (*name).to_owned(),
            req: (*req).to_owned(),
            kind: kind.map(str::to_owned),
            path: Some("there".to_owned()),
            features: Vec::new(),
        };
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            license: None,
            manifest_path: String::new(),
            repository: None,
            publish: None,
            dependencies: needs.iter().map(dependency).collect(),
        }
    }

    #[test]
    fn versions_that_differ_and_a_missing_heading_are_problems() {
        let core = package("memtrace-core", "0.2.0", &[]);
        let fine = [core.clone(), package("candle-memtrace", "0.2.0", &[("memtrace-core", "^0.2.0", None)])];
        assert_eq!(problems(&fine, "## [0.2.0] 2030-01-01\n"), Vec::<String>::new());
        let bad = [core, package("new", "0.1.0", &[("memtrace-core", "^0.1.0", None), ("x", "*", Some("dev"))])];
        let expected = [
            "new has version 0.1.0, not 0.2.0",
            "new is published, but the lane `packaged` does not try it",
            "new asks for memtrace-core ^0.1.0, not 0.2.0",
            "CHANGELOG.md has no heading ## [0.2.0]",
        ];
        assert_eq!(problems(&bad, "## [0.1.0]\n"), expected);
    }

    #[test]
    fn a_package_comes_behind_what_it_depends_on_but_for_tests() {
        let packages = [
            package("a", "1.0.0", &[("c", "^1.0.0", None)]),
            package("b", "1.0.0", &[("a", "^1.0.0", None)]),
            package("c", "1.0.0", &[("b", "^1.0.0", Some("dev"))]),
        ];
        assert_eq!(sorted(&packages).unwrap(), ["c", "a", "b"]);
        assert!(sorted(&[package("a", "1.0.0", &[("a", "^1.0.0", None)])]).is_err());
    }
}
