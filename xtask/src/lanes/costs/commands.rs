//! The reading commands of `cargo memtrace`, each in several forms.

/// `FILE` stands for the recording, `NEW` for a path that does not exist yet.
pub(super) const FILE: &str = "FILE";
pub(super) const NEW: &str = "NEW";

const ALL_KEYS: &str = "line,function,operator,module,category,scope,parameter,name,age,thread,stream,crate";

const COMMANDS: &[&str] = &[
    "report FILE",
    "report FILE --json",
    "report FILE --at end --by KEYS",
    "report FILE --from 0.001 --to peak",
    "report FILE --at step:1",
    "advise FILE",
    "leaks FILE",
    "temporaries FILE",
    "top FILE",
    "timeline FILE",
    "timeline FILE --by operator",
    "timeline FILE --by line",
    "timeline FILE --by category",
    "timeline FILE --by line -o -",
    "explain FILE main.rs:10",
    "explain FILE 0x10000000",
    "explain FILE matmul",
    "check FILE --baseline FILE --no-leak",
    "diff FILE FILE",
    "diff FILE FILE --by line,operator,scope,module --md --at peak --at-after end --threshold 0",
    "flamegraph FILE --by stack -o -",
    "flamegraph FILE --by scope -o -",
    "flamegraph FILE --by module -o -",
    "flamegraph FILE --diff FILE -o -",
    "view FILE -o - --no-open",
    "view FILE FILE -o - --no-open",
];

const TARGETS: [&str; 7] = ["pytorch", "chrome", "layout", "folded", "pprof", "dhat", "json"];
const TABLES: [&str; 2] = ["parquet", "csv"];

pub(super) fn commands() -> Vec<Vec<&'static str>> {
    let split =
        |command: &&'static str| command.split(' ').map(|word| if word == "KEYS" { ALL_KEYS } else { word }).collect();
    let export = |target: &'static str, out| vec!["export", FILE, "--to", target, "-o", out];
    let exports = TARGETS.map(|target| export(target, "-")).into_iter().chain(TABLES.map(|target| export(target, NEW)));
    COMMANDS.iter().map(split).chain(exports).collect()
}
