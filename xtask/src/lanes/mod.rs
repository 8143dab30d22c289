//! The list of all lanes. The lane `listed` fails if a benchmark, fuzz target or test program belongs to none of them.
//! The lanes `locks` and `scripts` find what they check in the tree.

mod address;
mod backward;
mod benches;
mod builds;
mod circles;
mod cited;
mod consumers;
mod corpus;
mod costs;
mod driver;
pub(crate) mod emulated;
mod fleet;
mod fuzzing;
mod launchers;
mod lints;
mod listed;
mod locks;
mod main_job;
mod nsight;
mod packaged;
mod packages;
mod page;
mod platforms;
mod pytorch;
mod report;
mod scripts;
mod shared_lines;
mod simulated;
mod soak;
mod tables;
mod tests;
mod tutorial;
mod viewers;
pub(crate) mod wheel;

pub(crate) use self::packaged::{PUBLISHED, packaged_source};

use crate::lane::{Lane, Tier};

pub(crate) const LANES: &[Lane] = &[
    Lane {
        name: "listed",
        tier: Tier::Quick,
        holds: "every benchmark and test program belongs to one lane",
        owns: &[],
        run: listed::run,
    },
    Lane {
        name: "locks",
        tier: Tier::Quick,
        holds: "every lock file of the repository is what its manifests ask for",
        owns: &[],
        run: locks::run,
    },
    Lane {
        name: "lints",
        tier: Tier::Quick,
        holds: "formatting, clippy and documentation have no warning, imports no cycle; the address stands in one place",
        owns: &["rustfmt.toml"],
        run: lints::run,
    },
    Lane {
        name: "tests",
        tier: Tier::Quick,
        holds: "the README's test command passes",
        owns: &["tests/programs/llama", "tests/programs/second-copy", "tests/programs/training"],
        run: tests::run,
    },
    Lane {
        name: "simulated",
        tier: Tier::Quick,
        holds: "recordings of candle and cudarc programs on simulated GPUs equal the simulator's log",
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
        name: "ranks",
        tier: Tier::Quick,
        holds: "a Llama in two processes over the stand-in for NCCL is recorded; NCCL's memory has a row of its own",
        owns: &["tests/simulated/candle-ranks"],
        run: simulated::ranks,
    },
    Lane {
        name: "unchanged",
        tier: Tier::Quick,
        holds: "unmodified programs behave under the preloaded library as alone, and their recordings are right",
        owns: &[
            "tests/simulated/burn-perceptron",
            "tests/simulated/candle-0.10",
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
        holds: "memtrace-runner runs tests of cargo and nextest, on a simulated GPU and without a GPU",
        owns: &[],
        run: simulated::runner,
    },
    Lane {
        name: "peaks",
        tier: Tier::Quick,
        holds: "peaks of ResNet-50 and Llama on the simulated GPU equal their baselines",
        owns: &[],
        run: simulated::peaks,
    },
    Lane {
        name: "builds",
        tier: Tier::Quick,
        holds: "reports are right for stripped binaries, v0 names and LTO",
        owns: &["tests/programs/bare"],
        run: builds::run,
    },
    Lane {
        name: "corpus",
        tier: Tier::Quick,
        holds: "attribution is right in programs whose every operator states what it is",
        owns: &["tests/programs/corpus"],
        run: corpus::run,
    },
    Lane {
        name: "backward",
        tier: Tier::Full,
        holds: "no block of a backward pass is given to a wrong call of the forward pass, in thirteen networks",
        owns: &["tests/programs/backward", "tests/simulated/checkpointed"],
        run: backward::run,
    },
    Lane {
        name: "main-job",
        tier: Tier::Quick,
        holds: "the README's main job writes all files; they agree with each other, theory and Perfetto",
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
        name: "page",
        tier: Tier::Quick,
        holds: "the offline page is what its sources build, shows the report's numbers and passes in a browser",
        owns: &["page"],
        run: page::run,
    },
    Lane {
        name: "consumers",
        tier: Tier::Quick,
        holds: "pprof, speedscope, DHAT's viewer, the Firefox Profiler and DuckDB compute the report's bytes themselves",
        owns: &["examples/server", "xtask/consumers"],
        run: consumers::run,
    },
    Lane {
        name: "tables",
        tier: Tier::Full,
        holds: "DuckDB runs the queries of docs/queries.md, Polars reads the same runs; both equal the reports",
        owns: &["xtask/tables"],
        run: tables::run,
    },
    Lane {
        name: "fleet",
        tier: Tier::Full,
        holds: "of eight ranks and of two in one folder, DuckDB, Spark on two workers and the report say the same of every line",
        owns: &[],
        run: fleet::run,
    },
    Lane {
        name: "launchers",
        tier: Tier::Full,
        holds: "ranks below Open MPI, MPICH, Slurm and torchrun are recorded and read as one job, and end as without memtrace",
        owns: &["xtask/launchers"],
        run: launchers::run,
    },
    Lane {
        name: "nsight",
        tier: Tier::Full,
        holds: "Nsight Systems shows the scopes of the examples as NVTX ranges, as often as the report counts them",
        owns: &[],
        run: nsight::run,
    },
    Lane {
        name: "uses",
        tier: Tier::Full,
        holds: "in models of candle-transformers the arguments of 99 % of kernels and the last use of 95 % of bytes are known",
        owns: &["tests/simulated/uses"],
        run: simulated::uses,
    },
    Lane {
        name: "fits",
        tier: Tier::Full,
        holds: "published architectures run on simulated cards with as much memory as `fit` says is enough, and with less than is needed they do not",
        owns: &["tests/simulated/candle-fits"],
        run: simulated::fits,
    },
    Lane {
        name: "driver",
        tier: Tier::Full,
        holds: "look-ups in NVIDIA's own driver libraries give what they give without memtrace, or the hook; tables of cudart and cuBLAS have it",
        owns: &["tests/programs/driver-probe", "xtask/driver"],
        run: driver::run,
    },
    Lane {
        name: "pytorch",
        tier: Tier::Full,
        holds: "on the simulated GPU, PyTorch's snapshots have the numbers that it counts, and the models reserve what its allocator reserves",
        owns: &["tests/programs/pytorch"],
        run: pytorch::run,
    },
    Lane {
        name: "kernels",
        tier: Tier::Full,
        holds: "the parameters of cuBLAS's kernels are those that NVIDIA's tool prints",
        owns: &[],
        run: driver::kernels::run,
    },
    Lane {
        name: "emulated",
        tier: Tier::Quick,
        holds: "on aarch64, emulated, the tests pass, stacks are libgcc's, and recordings those of x86-64",
        owns: &[],
        run: emulated::run,
    },
    Lane {
        name: "platforms",
        tier: Tier::Full,
        holds: "the library compiles without a warning for musl, macOS and Windows, where it records the heap",
        owns: &[],
        run: platforms::run,
    },
    Lane {
        name: "benches",
        tier: Tier::Quick,
        holds: "every benchmark runs",
        owns: &[
            "benches/cuda.rs",
            "benches/export.rs",
            "benches/report.rs",
            "benches/scale.rs",
            "benches/spans.rs",
            "benches/unwind.rs",
        ],
        run: benches::run,
    },
    Lane {
        name: "instructions",
        tier: Tier::Quick,
        holds: "an alloc+free pair takes no more instructions than its limit",
        owns: &["benches/record"],
        run: benches::instructions,
    },
    Lane {
        name: "scale",
        tier: Tier::Full,
        holds: "a million records are written within limits of time and memory",
        owns: &[],
        run: benches::scale,
    },
    Lane {
        name: "reading",
        tier: Tier::Full,
        holds: "a report of a million records keeps to 400 MB and 3 times the time of reading; ten million take ten times that",
        owns: &[],
        run: benches::reading,
    },
    Lane {
        name: "costs",
        tier: Tier::Full,
        holds: "every reading command takes at most 2.6 times as long for a recording twice as large, whatever it has much of",
        owns: &["core/examples/shapes"],
        run: costs::run,
    },
    Lane {
        name: "differences",
        tier: Tier::Full,
        holds: "twenty pairs of equal runs have no difference, and each of ten planted regressions is the first row",
        owns: &[],
        run: tests::differences,
    },
    Lane {
        name: "failing",
        tier: Tier::Full,
        holds: "a program of which one call of the driver fails behaves as alone, and its recording equals the simulator's log",
        owns: &[],
        run: simulated::failing,
    },
    Lane {
        name: "stacks",
        tier: Tier::Full,
        holds: "the tests pass, and every stack that they take is libgcc's",
        owns: &[],
        run: tests::stacks,
    },
    Lane {
        name: "scripts",
        tier: Tier::Quick,
        holds: "every script prints its help; at full size each runs in its smallest form",
        owns: &["benches/peers"],
        run: scripts::run,
    },
    Lane {
        name: "loom",
        tier: Tier::Quick,
        holds: "lock-free reads are right in every interleaving",
        owns: &["tests/loom"],
        run: tests::loom,
    },
    Lane {
        name: "stress",
        tier: Tier::Full,
        holds: "random programs and parallel tests pass many times over",
        owns: &[],
        run: tests::stress,
    },
    Lane {
        name: "soak",
        tier: Tier::Full,
        holds: "a server that is recorded for long keeps to its memory and its stream's budget, and its figures are exact",
        owns: &[],
        run: soak::run,
    },
    Lane {
        name: "verdicts",
        tier: Tier::Full,
        holds: "of thirty planted faults in tests none passes in 200 runs, and 25 are always found",
        owns: &[],
        run: tests::verdicts,
    },
    Lane {
        name: "fuzz",
        tier: Tier::Full,
        holds: "fuzzing finds no input that crashes a reader",
        owns: &["fuzz/corpus.tar.gz", "fuzz/examples", "fuzz/fuzz_targets"],
        run: fuzzing::run,
    },
    Lane {
        name: "features",
        tier: Tier::Full,
        holds: "every feature set builds without a warning",
        owns: &[],
        run: packages::features,
    },
    Lane {
        name: "packaged",
        tier: Tier::Full,
        holds: "a user installs and uses the packaged crates without the repository; docs/tool.md shows it",
        owns: &["xtask/packaged"],
        run: packaged::run,
    },
    Lane {
        name: "wheel",
        tier: Tier::Full,
        holds: "Python's wheel reads snapshots of PyTorch in a new environment without cargo",
        owns: &["python", "xtask/wheel"],
        run: wheel::run,
    },
    Lane {
        name: "licences",
        tier: Tier::Full,
        holds: "licences and sources of all dependencies are allowed",
        owns: &["deny.toml"],
        run: packages::licences,
    },
];

/// The lanes that the quick tier runs in its second process, in this order. They share no scratch folder with others.
/// The lanes that build for the tests' profile come last, because they would wait for the tests' own build.
pub(crate) const SECOND: &[&str] = &[
    "simulated",
    "unchanged",
    "runner",
    "peaks",
    "builds",
    "corpus",
    "main-job",
    "viewers",
    "page",
    "consumers",
    "loom",
    "emulated",
    "benches",
    "instructions",
    "ranks",
    "lints",
];

pub(crate) fn quick() -> Vec<&'static Lane> {
    LANES.iter().filter(|lane| lane.tier == Tier::Quick).collect()
}
