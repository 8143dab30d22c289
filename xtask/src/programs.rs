//! Executables that cargo built, found in its JSON messages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use xshell::Cmd;

use crate::checks::last_lines;
use crate::lane::output;

/// Executables by target name.
#[derive(Debug)]
pub(crate) struct Programs(BTreeMap<String, PathBuf>);

#[derive(Deserialize)]
struct CargoMessage {
    target: Option<CargoTarget>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct CargoTarget {
    name: String,
}

impl Programs {
    /// Runs a cargo command that builds.
    pub(crate) fn built_by(command: Cmd<'_>) -> Result<Self> {
        let command = command.arg("--message-format=json-render-diagnostics");
        let shown = command.to_string();
        let built = output(command)?;
        if !built.status.success() {
            bail!("`{shown}` ended with {}:\n{}", built.status, last_lines(&String::from_utf8_lossy(&built.stderr)));
        }
        Self::parse(&String::from_utf8(built.stdout)?)
    }

    fn parse(messages: &str) -> Result<Self> {
        let mut programs = BTreeMap::new();
        for line in messages.lines() {
            let message: CargoMessage = serde_json::from_str(line).with_context(|| format!("cargo printed {line}"))?;
            if let CargoMessage { target: Some(target), executable: Some(executable) } = message {
                programs.insert(target.name, executable);
            }
        }
        Ok(Self(programs))
    }

    pub(crate) fn path(&self, name: &str) -> Result<&Path> {
        Ok(self.0.get(name).with_context(|| format!("cargo built no {name}"))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_in_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"one"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"two"},"executable":"/built/two"}
{"reason":"build-finished","success":true}"#;
        let programs = Programs::parse(messages).unwrap();
        assert_eq!(programs.path("two").unwrap(), Path::new("/built/two"));
        assert_eq!(programs.path("one").unwrap_err().to_string(), "cargo built no one");
    }
}
