//! Baselines from one machine hold on another with more or fewer cores, whatever test runs first.

use std::path::{Path, PathBuf};
use std::process::Command;

use candle_core::{DType, Device, Tensor};

use crate::{one_at_a_time, runs};

/// The variable that makes the programs below run; the test starts them in child processes.
const IN_CHILD: &str = "MEMTRACE_TEST_CHILD";
/// The variable that makes each of them need 64 KiB more.
const PLANTED: &str = "MEMTRACE_TEST_PLANTED";

struct Mlp {
    first: Tensor,
    second: Tensor,
}

impl Mlp {
    fn new() -> Self {
        let ones = |rows, columns| Tensor::ones((rows, columns), DType::F32, &Device::Cpu).unwrap();
        Self { first: ones(256, 1024), second: ones(1024, 256) }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let planted = std::env::var_os(PLANTED).map(|_| std::hint::black_box(vec![1u8; 64 << 10]));
        let hidden = x.matmul(&self.first).unwrap().relu().unwrap();
        let y = hidden.matmul(&self.second).unwrap();
        drop(planted);
        y
    }
}

fn program(name: &str) {
    if std::env::var_os(IN_CHILD).is_none() {
        return;
    }
    let (model, x) = (Mlp::new(), Tensor::ones((100, 256), DType::F32, &Device::Cpu).unwrap());
    memtrace::assert_peak!(baseline = name, model.forward(&x));
}

#[test]
fn program_a() {
    program("a");
}

#[test]
fn program_b() {
    program("b");
}

#[test]
fn program_c() {
    program("c");
}

#[test]
fn program_d() {
    program("d");
}

/// A package with nothing but the folder for the baselines.
fn package() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("memtrace-baselines-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("tests/verdicts")).unwrap();
    std::fs::write(folder.join(file!()), "").unwrap();
    folder
}

/// Whether the programs pass with this number of workers and these options of the harness.
fn pass(package: &Path, workers: usize, arguments: &[&str], variables: &[(&str, &str)]) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(arguments).current_dir(package).envs(variables.iter().copied());
    child.envs([(IN_CHILD, "1"), ("CI", "1")]).env("RAYON_NUM_THREADS", workers.to_string());
    child.env("CARGO_MANIFEST_DIR", package).env_remove("RUST_BACKTRACE");
    let output = child.output().unwrap();
    if !output.status.success() && variables.is_empty() {
        println!("{workers} workers, {arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
    output.status.success()
}

const ALL: [&str; 1] = ["baselines::program_"];
const ONE: [&str; 4] = ["baselines::program_a", "baselines::program_b", "baselines::program_c", "baselines::program_d"];

#[test]
fn baselines_hold_with_any_number_of_workers_and_parallel_tests() {
    let _one = one_at_a_time();
    let package = package();
    assert!(pass(&package, 2, &[ALL[0], "--test-threads=4"], &[("MEMTRACE_UPDATE_BASELINES", "1")]));
    let (mut failed, mut found, mut count) = (0, 0, 0);
    let runs = runs().div_ceil(5);
    for (workers, variables) in [1, 2, 16].iter().flat_map(|n| [(*n, &[][..]), (*n, &[(PLANTED, "1")][..])]) {
        let planted = !variables.is_empty();
        for _ in 0..runs {
            let together = ["--test-threads=1", "--test-threads=4"]
                .map(|threads| pass(&package, workers, &[ALL[0], threads], variables));
            let apart = ONE.map(|name| pass(&package, workers, &["--exact", name], variables));
            for passed in together.into_iter().chain(apart) {
                count += 1;
                failed += usize::from(!planted && !passed);
                found += usize::from(planted && !passed);
            }
        }
    }
    println!("{failed} of {} failed, {found} of {} with 64 KiB more did", count / 2, count / 2);
    assert_eq!((failed, found), (0, count / 2));
    std::fs::remove_dir_all(package).unwrap();
}
