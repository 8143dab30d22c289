//! Detects a runner: a program that cargo's configuration puts in front of programs. The commands here do not call the
//! runner.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use memtrace_core::input::text_of;

/// The largest configuration that is read, in bytes.
const MOST: u64 = 1 << 20;

/// Where a runner is configured: a file, or an environment variable.
pub(crate) fn configured() -> Option<String> {
    let is_runners = |name: &str| name.starts_with("CARGO_TARGET_") && name.ends_with("_RUNNER");
    let variables = std::env::vars_os().filter_map(|(name, _): (OsString, _)| name.into_string().ok());
    let here = std::env::current_dir().unwrap_or_default();
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let folders = here.ancestors().map(|folder| folder.join(".cargo")).chain(home);
    let files = folders.flat_map(|folder| ["config.toml", "config"].map(|name| folder.join(name)));
    variables
        .into_iter()
        .find(|name| is_runners(name))
        .or_else(|| files.into_iter().find(|file| has_runner_in(file)).map(|file| file.display().to_string()))
}

fn has_runner_in(file: &Path) -> bool {
    text_of(file, MOST).is_ok_and(|text| has_runner(&text))
}

/// Whether a configuration has what cargo looks for: a key `runner` in a table `target.…`.
fn has_runner(config: &str) -> bool {
    let mut is_target = false;
    config.lines().map(str::trim).any(|line| {
        if line.starts_with('[') {
            is_target = line.starts_with("[target.");
        }
        let key = line.split_once('=').map_or("", |(key, _)| key.trim_end());
        is_target && key == "runner" || key.starts_with("target.") && key.ends_with(".runner")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_is_a_key_of_a_target() {
        for config in [
            "[build]\njobs = 2\n[target.x86_64-unknown-linux-gnu]\nrunner = \"perf stat\"\n",
            "[target.'cfg(unix)']\n  runner=[\"a\"]",
            "target.x86_64-unknown-linux-gnu.runner = 'a'",
        ] {
            assert!(has_runner(config), "{config}");
        }
        for config in
            ["", "[alias]\nrunner = 'run'", "[target.x]\nlinker = 'runner'\n# runner = 'a'\n[alias]\nrunner = 'b'"]
        {
            assert!(!has_runner(config), "{config}");
        }
    }
}
