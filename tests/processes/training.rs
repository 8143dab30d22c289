//! A small network in training, for processes that end in the middle of it, with checks that every recording of it must
//! pass.

use std::io::Write;
use std::path::PathBuf;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{BatchNorm, Linear, Module, ModuleT, VarBuilder, VarMap, batch_norm, linear};
use memtrace::analysis::Key;
use memtrace::snapshot::Replay;
use memtrace::{Builder, DeviceView, Snapshot, analysis, scope};

#[path = "../../examples/resnet/sgd.rs"]
mod sgd;

const LAYERS: usize = 16;
const ROWS: usize = 256;
const WIDTH: usize = 256;

/// One thread for children that train: candle's threads spin while they wait for each other, for seconds on a busy
/// machine.
pub(crate) const ONE_THREAD: (&str, &str) = ("RAYON_NUM_THREADS", "1");

/// The environment variable with the child's output path.
pub(crate) const OUT: &str = "TEST_OUT";

pub(crate) fn out() -> PathBuf {
    PathBuf::from(std::env::var_os(OUT).unwrap())
}

/// Records the network's blocks and little else.
pub(crate) fn recording() -> Builder {
    memtrace::builder().min_size("16 KiB").max_entries(100_000)
}

pub(crate) struct Training {
    layers: Vec<(Linear, BatchNorm)>,
    optimizer: sgd::SgdMomentum,
    input: Tensor,
}

impl Training {
    pub(crate) fn load() -> Result<Self> {
        let varmap = VarMap::new();
        let build = VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu);
        let layer = |number: usize| {
            let build = build.pp(number);
            Ok((linear(WIDTH, WIDTH, build.pp("linear"))?, batch_norm(WIDTH, 1e-5, build.pp("norm"))?))
        };
        let layers = (0..LAYERS).map(layer).collect::<Result<_>>()?;
        let optimizer = sgd::SgdMomentum::new(varmap.all_vars(), 0.01, 0.9);
        Ok(Self { layers, optimizer, input: Tensor::randn(0f32, 1f32, (ROWS, WIDTH), &Device::Cpu)? })
    }

    /// The loss.
    pub(crate) fn forward(&self) -> Result<Tensor> {
        let mut x = self.input.clone();
        for (linear, norm) in &self.layers {
            x = norm.forward_t(&linear.forward(&x)?, true)?.relu()?;
        }
        x.mean_all()
    }

    /// Forward, backward and optimizer.
    pub(crate) fn step(&mut self) -> Result<()> {
        let gradients = self.forward()?.backward()?;
        self.optimizer.step(&gradients)
    }

    /// Runs two steps, and prints a line after each.
    pub(crate) fn two_steps(&mut self) {
        for number in 1..=2 {
            scope(format!("step {number}"), || self.step()).unwrap();
            say(&format!("step {number}"));
        }
    }
}

pub(crate) fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

/// Checks sums and scopes, and that most of the memory has a line of the network.
pub(crate) fn check(snapshot: &Snapshot, scopes: &[&str]) {
    let device = snapshot.device(memtrace::Device::Cpu).unwrap();
    let lines = DeviceView::of(snapshot, device).by(Key::Line).clone();
    assert_eq!(lines.total, device.peak.total());
    let ours = ["training.rs", "sgd.rs"];
    let of_network = lines.rows.iter().filter(|row| ours.iter().any(|file| row.label.contains(file)));
    let share = of_network.map(|row| row.bytes).sum::<u64>() as f64 / lines.total as f64;
    assert!(share > 0.9, "{share}");
    let live: u64 = device.live.iter().map(|block| block.size).sum();
    assert_eq!(live + device.not_recorded, device.stats.allocated_bytes.current);
    let paths: Vec<String> =
        analysis::scopes(&DeviceView::of(snapshot, device)).into_iter().map(|row| row.path).collect();
    scopes.iter().for_each(|scope| assert!(paths.iter().any(|path| path == scope), "{scope}: {paths:?}"));
    assert!(snapshot.health.unreadable_objects.is_empty(), "{:?}", snapshot.health);
}

/// Invariant 18: the log, replayed from the blocks live at its start, ends in those live at its end.
pub(crate) fn check_replay(snapshot: &Snapshot) {
    let device = snapshot.device(memtrace::Device::Cpu).unwrap();
    let mut replay = Replay::at_log_start(device);
    device.records.iter().for_each(|record| replay.apply(record));
    assert_eq!(replay.blocks(), device.live);
}
