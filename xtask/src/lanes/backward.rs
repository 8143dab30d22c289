//! Pairings of backward passes in tests/programs/backward. It is built with a copy of candle that reports each node
//! that the pass reaches. The copy's folder is like cargo's registry, and the copy keeps all lines, so it is attributed
//! like the published candle.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use xshell::{Cmd, cmd};

use super::simulated::published;
use crate::lane::{Run, both_streams, output};
use crate::lanes::simulated::linked;
use crate::programs::Programs;

const SOURCE: &str = "tests/programs/backward";
const CANDLE: &str = "candle-core-0.11.1";

/// Replacements by file: the pass calls a function for each node, and operators become public.
const CHANGES: [(&str, &str, &str); 2] = [
    (
        "src/backprop.rs",
        "        for node in sorted_nodes.iter() {\n",
        "        for node in sorted_nodes.iter() { if let Some(call) = ON_NODE.get() { call(node) }\n",
    ),
    ("src/tensor.rs", "pub(crate) fn op(&self)", "pub fn op(&self)"),
];
const ADDED: &str = "
static ON_NODE: std::sync::OnceLock<fn(&Tensor)> = std::sync::OnceLock::new();

pub fn on_node(call: fn(&Tensor)) {
    let _ = ON_NODE.set(call);
}
";

pub(crate) fn run(run: &Run) -> Result<String> {
    let candle = copy(run)?;
    let folder = run.scratch("backward")?;
    cmd!(run.shell, "cp -r {SOURCE}/src {SOURCE}/Cargo.lock {folder}").run()?;
    let manifest = manifest_with(&run.shell.read_file(format!("{SOURCE}/Cargo.toml"))?, &run.root, &candle);
    run.shell.write_file(folder.join("Cargo.toml"), manifest)?;
    let manifest = folder.join("Cargo.toml");
    println!("on the CPU:");
    // The target folder has the dependencies that other lanes built.
    let target = &run.target;
    passes(cmd!(run.shell, "cargo run --quiet --manifest-path {manifest} --target-dir {target}"))?;
    println!("on a simulated GPU:");
    passes(on_gpu(run, &manifest)?)?;
    println!("with checkpointed modules:");
    let programs = linked(run, &["--bin=checkpointed"])?;
    let checkpointed = run.shell.cmd(programs.path("checkpointed")?).envs(run.simulated_gpu()?.variables());
    let output = output(checkpointed)?;
    print!("{}", both_streams(&output));
    ensure!(output.status.success(), "a peak is not the predicted one");
    Ok("no pairing is wrong, on the CPU and on a simulated GPU; checkpointed modules have the predicted peaks"
        .to_owned())
}

fn passes(program: Cmd<'_>) -> Result<()> {
    let output = output(program)?;
    print!("{}", both_streams(&output));
    ensure!(output.status.success(), "a pairing is wrong, or too few are right");
    Ok(())
}

fn on_gpu<'r>(run: &'r Run, manifest: &Path) -> Result<Cmd<'r>> {
    let gpu = run.simulated_gpu()?.variables();
    let target = &run.target;
    let build = cmd!(
        run.shell,
        "cargo build --quiet --features cuda --manifest-path {manifest} --target-dir {target}/backward"
    );
    let programs = Programs::built_by(build.envs(gpu.clone()))?;
    Ok(run.shell.cmd(programs.path("backward")?).envs(gpu))
}

fn manifest_with(manifest: &str, root: &Path, candle: &Path) -> String {
    let own = manifest.replace("\"../../..\"", &format!("\"{}\"", root.display()));
    format!("{own}\n[patch.crates-io]\ncandle-core = {{ path = \"{}\" }}\n", candle.display())
}

/// A changed copy of candle.
fn copy(run: &Run) -> Result<PathBuf> {
    let folder = run.target.join("backward-candle/registry/src/changed");
    let to = folder.join(CANDLE);
    let from = published(run, &run.root.join("Cargo.toml"), "candle-core")?;
    ensure!(from.ends_with(CANDLE), "{} is not {CANDLE}", from.display());
    run.shell.remove_path(&to)?;
    run.shell.create_dir(&folder)?;
    cmd!(run.shell, "cp -r --no-preserve=mode {from} {to}").run()?;
    for (file, before, after) in CHANGES {
        let source = run.shell.read_file(to.join(file))?;
        run.shell.write_file(to.join(file), changed(&source, before, after)?)?;
    }
    let pass = run.shell.read_file(to.join("src/backprop.rs"))?;
    run.shell.write_file(to.join("src/backprop.rs"), format!("{pass}{ADDED}"))?;
    Ok(to)
}

fn changed(source: &str, before: &str, after: &str) -> Result<String> {
    ensure!(source.matches(before).count() == 1, "{CANDLE} does not have once: {before}");
    ensure!(before.lines().count() == after.lines().count(), "lines must stay where they are");
    Ok(source.replace(before, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_does_not_fit_or_moves_lines_is_refused() {
        assert_eq!(changed("a\nb\n", "a\n", "a1\n").unwrap(), "a1\nb\n");
        assert!(changed("a\na\n", "a\n", "a1\n").is_err());
        assert!(changed("b\n", "a\n", "a1\n").is_err());
        assert!(changed("a\n", "a\n", "a\na\n").is_err());
    }
}
