//! The network of the example resnet under memtrace, compared with its memory in theory.

use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use memtrace::analysis::Key;
use memtrace::{DeviceView, scope};

#[path = "support/child.rs"]
mod child;
#[path = "../examples/resnet/model.rs"]
mod model;
#[path = "support/pytorchs_tools.rs"]
mod pytorchs_tools;
#[path = "../examples/resnet/sgd.rs"]
mod sgd;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

const IMAGE: usize = 32;

fn train(session: &memtrace::Session, steps: usize) -> candle_core::Result<()> {
    let held = || {
        let stats = memtrace::stats(memtrace::Device::Cpu);
        stats.allocated_bytes.current + stats.below_threshold
    };
    let before = held();
    let varmap = VarMap::new();
    let network = model::ResNet50::new(VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu))?;
    println!("loaded {}", held() - before);
    let mut optimizer = sgd::SgdMomentum::new(varmap.all_vars(), 0.01, 0.9);
    let images = Tensor::randn(0f32, 1f32, (1, 3, IMAGE, IMAGE), &Device::Cpu)?;
    let labels = Tensor::new(&[7u32], &Device::Cpu)?;
    for number in 1..=steps {
        memtrace::reset_peak(memtrace::Device::Cpu);
        let loss = scope(format!("step {number}"), || {
            let logits = network.forward(&images)?;
            candle_nn::loss::cross_entropy(&logits, &labels)
        })?;
        optimizer.step(&loss.backward()?)?;
        println!("peak {}", memtrace::stats(memtrace::Device::Cpu).allocated_bytes.peak);
    }
    check_sums(&session.snapshot());
    Ok(())
}

fn check_sums(snapshot: &memtrace::Snapshot) {
    let device = snapshot.device(memtrace::Device::Cpu).expect("the CPU is recorded");
    let peak = device.peak.total();
    for breakdown in [Key::Line, Key::Function, Key::Scope].map(|by| DeviceView::of(snapshot, device).by(by).clone()) {
        assert_eq!(breakdown.total, peak);
        assert_eq!(breakdown.rows.iter().map(|row| row.bytes).sum::<u64>(), peak);
    }
    let live = DeviceView::of(snapshot, device).at_end().by(Key::Line).into_owned();
    assert_eq!(live.total, device.stats.allocated_bytes.current + device.below_threshold);
    let lines = DeviceView::of(snapshot, device).by(Key::Line).clone();
    let in_model = lines.rows.iter().filter(|row| row.label.contains("resnet"));
    assert!(in_model.map(|row| row.bytes).sum::<u64>() * 10 > peak * 8, "lines of this program hold most: {lines:?}");
}

/// The numbers that the child printed after `word`, in order.
fn numbers(output: &str, word: &str) -> Vec<u64> {
    output.lines().filter_map(|line| line.strip_prefix(word)?.trim().parse().ok()).collect()
}

#[test]
fn parameters_and_peaks_agree_with_theory() {
    // candle and rayon read the number of threads once.
    let output = child::in_child(&[("RAYON_NUM_THREADS", "1")], || train(&memtrace::start().unwrap(), 5).unwrap()).out;
    let theory = (25_557_032 + 53_120) * 4;
    let loaded = numbers(&output, "loaded ")[0];
    assert!(loaded >= theory && loaded - theory < theory * 3 / 1000, "loaded {loaded}, theory {theory}");
    let peaks = numbers(&output, "peak ");
    assert_eq!(peaks.len(), 5, "{output}");
    assert!(peaks[1..].iter().all(|&peak| peak == peaks[1]), "peaks of steps 2 to 5 differ: {peaks:?}");
    // At least parameters, momentum and gradients; a network this small has few activations.
    assert!(peaks[1] > 3 * 25_557_032 * 4, "{peaks:?}");
}

#[test]
fn it_has_what_pytorchs_tools_have() {
    child::in_child(&[], || {
        let session = memtrace::builder().min_size("64 KiB").start().unwrap();
        train(&session, 2).unwrap();
        pytorchs_tools::check(&session.snapshot(), "step 2", tempfile::tempdir().unwrap().path());
    });
}
