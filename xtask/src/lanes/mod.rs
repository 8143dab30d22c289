//! The one list of all checks, and of what is no check. A script, bench, fuzz target or program for tests that is in
//! neither fails the lane `listed`.

mod benches;
mod builds;
mod circles;
mod corpus;
mod fuzzing;
mod lints;
mod listed;
mod main_job;
mod packages;
mod simulated;
mod tests;
mod viewers;

use crate::lane::{Lane, Tier};

pub(crate) const LANES: &[Lane] = &[
    Lane {
        name: "listed",
        tier: Tier::Quick,
        holds: "every script, benchmark and program for tests belongs to one lane, or is a tool",
        owns: &[],
        run: listed::run,
    },
    Lane {
        name: "lints",
        tier: Tier::Quick,
        holds: "format, clippy and documentation without a warning",
        owns: &["rustfmt.toml"],
        run: lints::run,
    },
    Lane {
        name: "tests",
        tier: Tier::Quick,
        holds: "the README's test command passes",
        owns: &["tests/programs/llama", "tests/programs/second-copy"],
        run: tests::run,
    },
    Lane {
        name: "simulated",
        tier: Tier::Quick,
        holds: "candle and cudarc programs on simulated GPUs are recorded as the simulator has it",
        owns: &[
            "tests/gpu",
            "tests/simulated/candle-recorded",
            "tests/simulated/categories",
            "tests/simulated/candle-train",
            "tests/simulated/cudarc-linked",
            "tests/simulated/cudarc-loaded",
        ],
        run: simulated::run,
    },
    Lane {
        name: "unchanged",
        tier: Tier::Quick,
        holds: "programs that were not changed end, speak and are recorded under the preloaded library as alone",
        owns: &[
            "tests/simulated/burn-perceptron",
            "tests/simulated/candle-0.9",
            "tests/simulated/candle-examples",
            "tests/simulated/cudarc-0.16-examples",
            "tests/simulated/cudarc-examples",
            "tests/simulated/luminal-perceptron",
        ],
        run: simulated::unchanged,
    },
    Lane {
        name: "runner",
        tier: Tier::Quick,
        holds: "tests through memtrace-runner, with cargo and with nextest, on a simulated GPU and with none",
        owns: &["scripts/nextest"],
        run: simulated::runner,
    },
    Lane {
        name: "peaks",
        tier: Tier::Quick,
        holds: "peaks of ResNet-50 and Llama on the simulated GPU are those of their baselines",
        owns: &[],
        run: simulated::peaks,
    },
    Lane {
        name: "builds",
        tier: Tier::Quick,
        holds: "reports of builds that change what symbols say: stripped, v0 names, LTO",
        owns: &["tests/programs/bare"],
        run: builds::run,
    },
    Lane {
        name: "corpus",
        tier: Tier::Quick,
        holds: "attribution of programs whose every operator says what it is",
        owns: &["tests/programs/corpus"],
        run: corpus::run,
    },
    Lane {
        name: "main-job",
        tier: Tier::Quick,
        holds: "the README's main job writes all its files; report, pickle and traces say the same as theory and Perfetto",
        owns: &["xtask/perfetto"],
        run: main_job::run,
    },
    Lane {
        name: "viewers",
        tier: Tier::Quick,
        holds: "PyTorch's own viewers open the main job's snapshot",
        owns: &[],
        run: viewers::run,
    },
    Lane {
        name: "benches",
        tier: Tier::Quick,
        holds: "every benchmark runs",
        owns: &["benches/cuda.rs", "benches/export.rs", "benches/scale.rs", "benches/spans.rs", "benches/unwind.rs"],
        run: benches::run,
    },
    Lane {
        name: "instructions",
        tier: Tier::Quick,
        holds: "an event takes no more instructions than its limit",
        owns: &["benches/record", "scripts/bench-record"],
        run: benches::instructions,
    },
    Lane {
        name: "scale",
        tier: Tier::Full,
        holds: "a million records are written within their limits of time and memory",
        owns: &["scripts/check-scale"],
        run: benches::scale,
    },
    Lane {
        name: "peers",
        tier: Tier::Full,
        holds: "the programs that are measured beside other heap profilers run",
        owns: &[
            "benches/peers",
            "scripts/bench-peers",
            "scripts/bench-sample",
            "scripts/bench-toggle",
            "scripts/peers",
        ],
        run: benches::peers,
    },
    Lane {
        name: "loom",
        tier: Tier::Quick,
        holds: "what is read without a lock is right under every order of steps",
        owns: &["tests/loom"],
        run: tests::loom,
    },
    Lane {
        name: "stress",
        tier: Tier::Full,
        holds: "random programs and tests side by side, many times over",
        owns: &[],
        run: tests::stress,
    },
    Lane {
        name: "fuzz",
        tier: Tier::Full,
        holds: "fuzzers find no input that a reader takes badly",
        owns: &["fuzz/examples", "fuzz/fuzz_targets"],
        run: fuzzing::run,
    },
    Lane {
        name: "features",
        tier: Tier::Full,
        holds: "every set of features builds without a warning",
        owns: &[],
        run: packages::features,
    },
    Lane {
        name: "licences",
        tier: Tier::Full,
        holds: "licences and sources of all dependencies are allowed ones",
        owns: &["deny.toml"],
        run: packages::licences,
    },
];

/// Scripts that are no checks, and why they are there.
const TOOLS: &[(&str, &str)] = &[
    ("scripts/cuda-toolkit", "users and scripts/gpu-check build with it; it needs a download of 105 MB"),
    ("scripts/gpu-check", "for machines with a GPU; the lane simulated runs its program"),
    ("scripts/simulated-driver", "part of scripts/with-simulated-gpu"),
    ("scripts/stand-in-toolkit", "part of scripts/with-simulated-gpu"),
    ("scripts/with-simulated-gpu", "users run programs with it, and so do most lanes"),
];

pub(crate) fn quick() -> Vec<&'static Lane> {
    LANES.iter().filter(|lane| lane.tier == Tier::Quick).collect()
}
