//! Checks that Nsight Systems, NVIDIA's profiler, shows the examples' scopes as often as the report counts them. It
//! needs no GPU for NVTX ranges.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use xshell::cmd;

use super::report::JsonReport;
use crate::cached::{cached, debian};
use crate::checks::Checks;
use crate::lane::{Run, output};
use crate::programs::Programs;

/// Packages of Debian 12, with their checksums.
const PACKAGES: [(&str, &str); 2] = [
    ("nsight-systems", "3bfcdf9119a3aab3dadd6aa9faedb5407b71f6afaa678e98b54ab97d87627c2e"),
    ("nsight-systems-target", "420ab94d22cb8e30feaf88f0acb7735500ffd564e5a2027f09e87438ac11615e"),
];
const VERSION: &str = "2022.4.2.1~11.8.0-5~deb12u1";

/// Programs, and arguments that make their runs short.
const EXAMPLES: [(&str, &[&str]); 2] =
    [("resnet", &["--iterations", "3", "--image", "64"]), ("llama", &["--tokens", "4", "--layers", "2"])];

pub(crate) fn run(run: &Run) -> Result<String> {
    let Some(root) = cached(run, Path::new("nsight"), |new| fetch(run, new))? else {
        return Ok("NOT RUN: Nsight Systems is not in the cache and could not be had".to_owned());
    };
    let (folder, programs) = (
        run.scratch("nsight")?,
        Programs::built_by(cmd!(run.shell, "cargo build --quiet -p candle-memtrace -p llama-example --examples"))?,
    );
    let mut checks = Checks::default();
    for (name, arguments) in EXAMPLES {
        let files = folder.join(name);
        let trace = folder.join(format!("{name}.qdstrm"));
        let tool = root.join("usr/lib/nsight-systems/bin/nsys");
        let program = programs.path(name)?;
        let options = ["--trace=nvtx", "--sample=none", "--cpuctxsw=none"];
        let watched =
            cmd!(run.shell, "{tool} profile {options...} --output {trace} {program} --out {files} {arguments...}");
        output(watched)?;
        checks.equal(name, ranges(run, &root, &trace)?, scopes(&files)?);
    }
    checks.end()
}

fn fetch(run: &Run, new: &Path) -> Result<bool> {
    for (package, sha256) in PACKAGES {
        let package = format!("non-free/n/nvidia-cuda-toolkit/{package}_{VERSION}_amd64.deb");
        if !debian(run, &package, sha256, new)? {
            return Ok(false);
        }
    }
    // Nsight's importer needs the library under a name that only the developers' package has.
    let _in_folder = run.shell.push_dir(new);
    let had = output(cmd!(run.shell, "bash -c 'apt-get download libssh-4 && dpkg-deb --extract libssh-4_*.deb .'"))?;
    let link = new.join("usr/lib/x86_64-linux-gnu/libssh.so");
    Ok(had.status.success() && std::os::unix::fs::symlink("libssh.so.4", link).is_ok())
}

/// How often each range occurred, according to Nsight's summary.
fn ranges(run: &Run, root: &Path, trace: &Path) -> Result<BTreeMap<String, u64>> {
    let host = root.join("usr/lib/nsight-systems/host-linux-x64");
    let libraries = format!("{}:{}", host.display(), root.join("usr/lib/x86_64-linux-gnu").display());
    let importer = host.join("QdstrmImporter");
    output(cmd!(run.shell, "{importer} -i {trace}").env("LD_LIBRARY_PATH", libraries))?;
    let (tool, report) = (root.join("usr/lib/nsight-systems/bin/nsys"), trace.with_extension("nsys-rep"));
    let text = cmd!(run.shell, "{tool} stats --report nvtxsum --format csv {report}").ignore_stderr().read()?;
    let at = text.find("Time (%),").context("Nsight saw no ranges")?;
    let mut rows = csv::Reader::from_reader(&text.as_bytes()[at..]);
    let columns = rows.headers()?.clone();
    let column = |name| columns.iter().position(|column| column == name).context("Nsight's summary has other columns");
    let (range, instances) = (column("Range")?, column("Instances")?);
    rows.records().map(|row| row.map(|row| Ok((row[range].to_owned(), row[instances].parse()?)))?).collect()
}

/// How often each scope was entered, by its name.
fn scopes(files: &Path) -> Result<BTreeMap<String, u64>> {
    let report: JsonReport = serde_json::from_slice(&std::fs::read(files.join("report.json"))?)?;
    let mut calls = BTreeMap::new();
    for scope in report.devices.iter().flat_map(|device| &device.scopes) {
        let name = scope.path.rsplit(" > ").next().unwrap_or_default();
        *calls.entry(name.to_owned()).or_default() += scope.calls;
    }
    Ok(calls)
}
