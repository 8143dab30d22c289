//! Builds of the probe, and its runs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use super::symbols::{self, Names};
use crate::lane::{Run, output, said};
use crate::lanes::emulated::machine::Emulated;
use crate::machine::AARCH64;
use crate::programs::Programs;

const SOURCE: &str = "tests/programs/driver-probe/probe.c";
const PRELOAD: &str = "libmemtrace_preload.so";

/// Where memtrace is in the probe's process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Host {
    /// In the preload library.
    Preload,
    /// In the program.
    Linked,
}

pub(super) struct Probe<'r> {
    run: &'r Run,
    folder: PathBuf,
    linked: PathBuf,
    preload: PathBuf,
    preload_hooks: Names,
    linked_hooks: Names,
}

impl<'r> Probe<'r> {
    /// For this machine, or the emulated one.
    pub(super) fn build(run: &'r Run, emulated: Option<&Emulated<'_>>) -> Result<Self> {
        let (shell, folder) = (&run.shell, run.scratch("driver")?);
        let cc = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let cc = emulated.map_or(cc, |_| AARCH64.compiler.into());
        for (file, options) in [
            ("probe", &[] as &[&str]),
            ("host", &["-DPROBE_HOST"]),
            ("probe.so", &["-DPROBE_LIBRARY", "-shared", "-fPIC"]),
        ] {
            said(cmd!(shell, "{cc} -O1 -Wall -Werror -o {folder}/{file} {SOURCE} {options...} -ldl"))?;
        }
        let build = cmd!(shell, "cargo build --quiet --package memtrace-preload --package driver-probe");
        let build = match emulated {
            Some(emulated) => emulated.cargo(build),
            None => build,
        };
        let linked = Programs::built_by(build)?.path("driver-probe")?.to_owned();
        let preload = linked.with_file_name(PRELOAD);
        let [preload_hooks, linked_hooks] = [symbols::hooks(run, &preload)?, symbols::hooks(run, &linked)?];
        Ok(Self { run, folder, linked, preload, preload_hooks, linked_hooks })
    }

    /// The preload library.
    pub(super) fn preload(&self) -> &Path {
        &self.preload
    }

    /// The file that contains memtrace, and its hooks.
    pub(super) fn hooks(&self, host: Host) -> (&str, &Names) {
        match host {
            Host::Preload => (PRELOAD, &self.preload_hooks),
            Host::Linked => ("driver-probe", &self.linked_hooks),
        }
    }

    /// Writes a file of names to look up: these names, and the same names without suffixes.
    pub(super) fn names<'n>(&self, version: &str, exports: impl Iterator<Item = &'n str>) -> Result<PathBuf> {
        let bare = |name: &'n str| {
            name.trim_end_matches("_ptsz").trim_end_matches("_ptds").trim_end_matches("_v2").trim_end_matches("_v3")
        };
        let names: BTreeSet<&str> = exports.flat_map(|name| [name, bare(name)]).collect();
        let file = self.folder.join(format!("names-{version}"));
        self.run.shell.write_file(&file, names.into_iter().collect::<Vec<_>>().join("\n"))?;
        Ok(file)
    }

    /// The probe's output without memtrace and with it. A library may be initialized before the program, and before
    /// memtrace.
    pub(super) fn both(
        &self,
        host: Host,
        driver: &Path,
        cuda: Option<(&Path, Option<&str>)>,
        arguments: &[&OsStr],
    ) -> Result<[String; 2]> {
        let first = cuda.and_then(|(_, first)| first);
        let (folder, library) = (&self.folder, self.folder.join("probe.so"));
        let path = [Some(driver), cuda.map(|(cuda, _)| cuda)].into_iter().flatten();
        let path = std::env::join_paths(path)?;
        let shell = &self.run.shell;
        let (plain, ours) = match host {
            Host::Preload => {
                (cmd!(shell, "{folder}/probe {arguments...}"), cmd!(shell, "{folder}/probe {arguments...}"))
            }
            Host::Linked => {
                let linked = &self.linked;
                (
                    cmd!(shell, "{folder}/host {library} {arguments...}"),
                    cmd!(shell, "{linked} {library} {arguments...}"),
                )
            }
        };
        let preload = (host == Host::Preload).then(|| self.preload.to_str()).flatten();
        let of = |preload: Option<&str>| preload.into_iter().chain(first).collect::<Vec<_>>().join(":");
        let ours = ours.env("PROBE_MEMTRACE", self.hooks(host).0);
        let printed = |command: xshell::Cmd<'_>, preload: String| -> Result<String> {
            let ended = output(command.env("LD_LIBRARY_PATH", &path).env("LD_PRELOAD", preload))?;
            ensure!(
                ended.status.success(),
                "the probe ended with {}: {}",
                ended.status,
                String::from_utf8_lossy(&ended.stderr)
            );
            String::from_utf8(ended.stdout).context("the probe prints text")
        };
        Ok([printed(plain, of(None))?, printed(ours, of(preload))?])
    }
}
