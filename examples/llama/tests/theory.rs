//! Memory of candle's networks compared with theory. `resnet.rs` covers the parameters of ResNet-50 and the repetition
//! of steps, `llama.rs` the figures of the example llama.
//!
//! Each number is the live bytes of one scope in a snapshot; each test states its tolerance.

use std::sync::{Mutex, PoisonError};

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::{AdamW, Optimizer, VarBuilder, VarMap};
use memtrace::analysis::Key;
use memtrace::snapshot::Block;
use memtrace::{DeviceView, Session, attribute, scope};

#[path = "../generate.rs"]
#[expect(dead_code, reason = "the example looks at more")]
mod generate;
#[path = "../model.rs"]
#[expect(dead_code, reason = "the example also makes weights")]
mod llama;
#[path = "../../resnet/model.rs"]
mod resnet;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// One session at a time.
static RECORDING: Mutex<()> = Mutex::new(());

fn recorded(test: impl FnOnce(&Session) -> Result<()>) {
    let _alone = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
    let session = memtrace::start().unwrap();
    test(&session).unwrap();
}

/// Live bytes allocated directly in the scope with this path.
fn live_in(session: &Session, path: &str) -> f64 {
    let snapshot = session.snapshot();
    let device = snapshot.device(memtrace::Device::Cpu).unwrap();
    let rows = DeviceView::of(&snapshot, device).at_end().by(Key::Scope).into_owned().rows;
    rows.iter().find(|row| row.label == path).map_or(0., |row| row.bytes as f64)
}

/// Live bytes of tensors created by concatenation. A whole scope would include rayon's queues, which grow at any time.
fn joined(session: &Session) -> f64 {
    let snapshot = session.snapshot();
    let live = &snapshot.device(memtrace::Device::Cpu).unwrap().live;
    let attribution = attribute::Attribution::new(&snapshot);
    let operator = |block: &Block| attribute::operator(&attribution, block.stack).map(|operator| operator.to_string());
    let joined = live.iter().filter(|block| operator(block).is_some_and(|name| name.starts_with("cat/")));
    joined.map(|block| block.size as f64).sum()
}

/// Checks that `found` is `theory` within `percent`. A scope also contains memory that is no tensor, and lacks blocks
/// below the threshold.
fn check(what: &str, found: f64, theory: u64, percent: f64) {
    let error = 100. * (found / theory as f64 - 1.);
    println!("{what}: {found} bytes, {theory} in theory, {error:+.4} %");
    assert!(error.abs() <= percent, "{what}: {found}, theory {theory}");
}

/// Values that the forward pass keeps for the backward pass, for one square image of `size` pixels.
fn resnet_activations(size: usize) -> usize {
    // A convolution keeps its output; batch norm keeps five tensors of that size and six values per channel.
    let convolution = |channels: usize, size: usize| 6 * channels * size * size + 6 * channels;
    let (half, quarter) = (size / 2, size / 4);
    // The stem with its relu.
    let mut sum = convolution(64, half) + 64 * half * half;
    // A max pool keeps, along each dimension, the padding, the padded tensor, and two maxima.
    sum += 64 * (2 * half + (half + 2) * half + 2 * quarter * half);
    sum += 64 * (2 * quarter + (half + 2) * quarter + 2 * quarter * quarter);
    let mut size = quarter;
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let (width, out) = (64 << stage, 256 << stage);
        for block in 0..blocks {
            let before = size;
            size = if stage > 0 && block == 0 { size / 2 } else { size };
            sum += convolution(width, before) + width * before * before;
            sum += convolution(width, size) + width * size * size;
            // The last convolution is followed by addition and relu.
            sum += convolution(out, size) + 2 * out * size * size;
            sum += if block == 0 { convolution(out, size) } else { 0 };
        }
    }
    sum
}

#[test]
fn resnet_keeps_the_activations_that_its_backward_pass_needs() {
    recorded(|session| {
        let varmap = VarMap::new();
        let network = resnet::ResNet50::new(VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu))?;
        let images = Tensor::randn(0f32, 1., (1, 3, 224, 224), &Device::Cpu)?;
        // Buffers of the matrix product are allocated here, outside the scope.
        drop(network.forward(&images)?);
        let logits = scope("forward", || network.forward(&images))?;
        let theory = 4 * resnet_activations(224) as u64;
        check("activations", live_in(session, "forward"), theory, 0.01);
        drop(logits);
        assert!(live_in(session, "forward") < 1e-4 * theory as f64, "they go with the output");
        Ok(())
    });
}

#[test]
fn adamw_keeps_two_values_for_each_parameter() {
    recorded(|session| {
        let varmap = VarMap::new();
        let vb = VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu);
        let layers = [(784, 2048, "one"), (2048, 1024, "two"), (1024, 512, "three"), (512, 10, "four")];
        let layers = layers.map(|(from, to, name)| candle_nn::linear(from, to, vb.pp(name)));
        let parameters: usize = varmap.all_vars().iter().map(|var| var.elem_count()).sum();
        let mut optimizer = scope("optimizer", || AdamW::new_lr(varmap.all_vars(), 1e-3))?;
        check("state of AdamW", live_in(session, "optimizer"), 8 * parameters as u64, 0.01);
        let mut x = Tensor::ones((1, 784), DType::F32, &Device::Cpu)?;
        for layer in layers {
            x = layer?.forward(&x)?;
        }
        let gradients = x.sum_all()?.backward()?;
        scope("step", || optimizer.step(&gradients))?;
        assert!(live_in(session, "step") < parameters as f64 / 1000., "a step keeps nothing");
        Ok(())
    });
}

/// Checks weights, tables and KV cache of a Llama.
fn llama_holds_what_theory_says(layers: usize, hidden: usize, theory: llama::Theory) {
    recorded(|session| {
        let config = llama::small(layers, hidden);
        assert_eq!(llama::Theory::of(&config, DType::F32), theory);
        let weights = || Ok(VarBuilder::zeros(DType::F32, &Device::Cpu));
        let mut model = generate::Generation::load(weights, &config, DType::F32, &Device::Cpu)?;
        check("weights", live_in(session, "load"), theory.parameters, 0.01);
        check("RoPE tables", live_in(session, "rope tables"), theory.rope_tables, 0.);
        let (first, _) = model.prefill(&[1, 2, 3, 4])?;
        model.decode(first, 4, 2)?;
        let before = joined(session);
        model.decode(first, 6, 5)?;
        check("KV cache of a token", (joined(session) - before) / 5., theory.per_token, 0.);
        Ok(())
    });
}

#[test]
fn a_llama_of_four_layers_adds_4096_bytes_a_token() {
    let theory = llama::Theory { parameters: 77_341_696, rope_tables: 262_144, per_token: 4_096 };
    llama_holds_what_theory_says(4, 256, theory);
}

#[test]
fn a_llama_of_eight_layers_adds_16384_bytes_a_token() {
    let theory = llama::Theory { parameters: 223_905_792, rope_tables: 262_144, per_token: 16_384 };
    llama_holds_what_theory_says(8, 512, theory);
}
