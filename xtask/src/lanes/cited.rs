//! Checks that each test in the tables of some pages is in the file to which its row links.

use anyhow::{Result, ensure};

use crate::lane::Run;

/// Pages, and the least number of tests that each must name.
const PAGES: [(&str, usize); 2] = [("docs/threat-model.md", 31), ("docs/cuda.md", 25)];

pub(super) fn run(run: &Run) -> Result<()> {
    PAGES.iter().try_for_each(|(page, least)| check(run, page, *least))
}

fn check(run: &Run, page: &str, least: usize) -> Result<()> {
    let text = run.shell.read_file(run.root.join(page))?;
    let tests = cited(&text);
    ensure!(tests.len() >= least, "{page} names only {} tests", tests.len());
    let text = |file: &str| std::fs::read_to_string(run.root.join(file)).unwrap_or_default();
    let missing = tests.iter().filter(|(test, file)| !text(file).contains(&format!("fn {test}(")));
    let missing: Vec<String> = missing.map(|(test, file)| format!("{file} has no {test}")).collect();
    ensure!(missing.is_empty(), "{page}: {}", missing.join("; "));
    Ok(())
}

/// Names of tests and the files in which they are: ``…`name`, `other` in [file.rs](../file.rs)``.
fn cited(page: &str) -> Vec<(&str, &str)> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let groups = rows.flat_map(|row| row.rsplit('|').nth(1).unwrap_or_default().split("; "));
    groups
        .filter_map(|group| {
            let (names, file) = group.split_once(" in [")?;
            let file = file.split_once("](../")?.1.split_once(')')?.0;
            Some(names.split('`').skip(1).step_by(2).map(move |name| (name, file)))
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_of_a_row_is_found_with_its_file() {
        let page = "`none` in [x](../x)\n| `a` | b | `one`, `two` in [a.rs](../t/a.rs); `three` in [b.rs](../b.rs); lane `page` |\n";
        assert_eq!(cited(page), [("one", "t/a.rs"), ("two", "t/a.rs"), ("three", "b.rs")]);
    }
}
