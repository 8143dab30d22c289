//! Checks that each script prints its help and, at full size, that its smallest form runs.

use anyhow::{Context, Result};
use xshell::cmd;

use crate::checks::{Checks, last_lines};
use crate::lane::{Run, said};
use crate::tree;

/// Arguments of the smallest form of each script without `--test`. `OUT` is a new folder.
const SMALLEST: [(&str, &[&str]); 3] = [
    // Downloads 105 MB into the cache, once.
    ("scripts/cuda-toolkit", &[]),
    ("scripts/emulate-aarch64", &["OUT/aarch64"]),
    ("scripts/gpu-check", &["OUT/gpu-check"]),
];

pub(crate) fn run(run: &Run) -> Result<String> {
    let scripts = scripts(&tree::files(run)?);
    let mut checks = Checks::default();
    for (name, _) in SMALLEST.iter().filter(|(name, _)| !scripts.iter().any(|script| script == name)) {
        checks.fail(&format!("{name} is not there, but xtask/src/lanes/scripts.rs names it"));
    }
    for script in &scripts {
        checks.result(script, check(run, script));
    }
    checks.end()
}

/// The files in `scripts/` itself; its folders contain parts of scripts.
fn scripts(files: &[String]) -> Vec<String> {
    let is_script = |file: &&String| file.strip_prefix("scripts/").is_some_and(|name| !name.contains('/'));
    files.iter().filter(is_script).cloned().collect()
}

fn check(run: &Run, script: &str) -> Result<String> {
    let help = said(cmd!(run.shell, "{script} --help"))?;
    let smallest =
        smallest(script, &help).context("it has no --test, and xtask/src/lanes/scripts.rs no smallest form")?;
    if !run.is_full() {
        return Ok("prints its help".to_owned());
    }
    let out = run.scratch("scripts")?.display().to_string();
    let arguments: Vec<String> = smallest.iter().map(|argument| argument.replace("OUT", &out)).collect();
    let printed = said(cmd!(run.shell, "{script} {arguments...}"))?;
    println!("{}", last_lines(&printed));
    Ok(format!("`{}` runs", [&[script], smallest].concat().join(" ")))
}

fn smallest(script: &str, help: &str) -> Option<&'static [&'static str]> {
    if help.contains("--test") {
        return Some(&["--test"]);
    }
    SMALLEST.iter().find(|(name, _)| *name == script).map(|(_, arguments)| *arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_script_is_found_and_has_a_smallest_form_or_fails() {
        let files = ["scripts/new", "scripts/peers/machine.py", "src/lib.rs"].map(str::to_owned);
        assert_eq!(scripts(&files), ["scripts/new"]);
        assert_eq!(smallest("scripts/new", "--help"), None);
        assert_eq!(smallest("scripts/new", "--test  a quick look"), Some(&["--test"][..]));
        assert_eq!(smallest("scripts/cuda-toolkit", "--help"), Some(&[][..]));
    }
}
