//! Standard terms: a search for the term of a technique finds the file that implements it.

use anyhow::{Context, Result, ensure};

use crate::lane::Run;

const TERMS: &[(&str, &str)] = &[
    ("ABA", "src/record/unwind/objects.rs"),
    ("Bloom filter", "src/record/sampling.rs"),
    ("GOT", "src/hook/interpose/patch.rs"),
    ("Poisson", "src/record/sampling.rs"),
    ("TSC", "src/record/clock.rs"),
    ("cache line", "src/record/live.rs"),
    ("data race", "src/record/stacks/index.rs"),
    ("deadlock", "src/record/unwind/mod.rs"),
    ("false sharing", "src/record/untraced.rs"),
    ("high-water mark", "src/record/peak.rs"),
    ("huge page", "src/record/pages.rs"),
    ("incremental unwinding", "src/record/unwind/fast/last.rs"),
    ("linear probing", "src/record/live.rs"),
    ("reentrancy", "src/record/guard.rs"),
    ("ring buffer", "src/record/log.rs"),
    ("state machine", "src/record/recorder/state.rs"),
];

pub(crate) fn run(run: &Run) -> Result<()> {
    for (term, file) in TERMS {
        let text =
            run.shell.read_file(run.root.join(file)).with_context(|| format!("xtask/src/lanes/terms.rs: {file}"))?;
        let text = text.lines().map(|line| line.trim_start_matches([' ', '/', '!'])).collect::<Vec<_>>().join(" ");
        ensure!(text.to_lowercase().contains(&term.to_lowercase()), "{file} does not use the standard term {term:?}");
    }
    Ok(())
}
