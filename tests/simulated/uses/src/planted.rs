//! Programs with planted waste, each also with the advice followed. The advice names the line that allocates and the line of
//! the last use, and the program that follows it has the predicted peak, to the byte.

#![allow(unsafe_code, reason = "allocates without a fill")]

use candle_core::cuda_backend::WrapErr;
use candle_core::{DType, Device, Module, Result, Tensor, Var};
use candle_nn::Linear;
use memtrace::analysis::{Waste, WasteKind, waste};
use memtrace::report::findings;
use memtrace::{Bytes, DeviceView, Snapshot};

use crate::{Outcome, cumsum, in_place};

/// Allocates and uses on these lines what is wasted; true if it follows the advice.
type Program = fn(&Device, bool) -> Result<Vec<[u32; 2]>>;

const PROGRAMS: &[(&str, WasteKind, Program)] = &[
    ("shadowed", WasteKind::PastLastUse, shadowed),
    ("over a layer", WasteKind::PastLastUse, held_over_a_layer),
    ("in a structure", WasteKind::PastLastUse, held_in_a_structure),
    ("kept graph", WasteKind::PastLastUse, kept_graph),
    ("oversized cache", WasteKind::NeverUsed, oversized_cache),
];

/// Prints a row per program; false if one is not as expected.
pub(crate) fn check() -> Outcome<bool> {
    println!("| waste | peak | predicted | advice followed |\n|---|---|---|---|");
    let mut is_ok = true;
    for (name, kind, program) in PROGRAMS {
        let mut lines = Vec::new();
        let kept = record(|device| program(device, false).map(|found| lines = found))?;
        let cured = record(|device| program(device, true).map(drop))?;
        let [wasted, left] = [wastes(&kept)?, wastes(&cured)?];
        let predicted = wasted.last().map_or(0, |row| row.peak_without);
        println!("| {name} | {} | {} | {} |", Bytes(peak(&kept)?), Bytes(predicted), Bytes(peak(&cured)?));
        let mut found: Vec<[u32; 2]> = wasted.iter().map(|row| [line(&row.line), line(&row.use_line)]).collect();
        found.sort_unstable();
        lines.sort_unstable();
        let is_once = !kinds(&kept)?.contains(&"live_twice");
        let is_known = wasted.iter().all(|row| row.kind == *kind) && found == lines && is_once;
        if !is_known || predicted != peak(&cured)? || !left.is_empty() || !kinds(&cured)?.is_empty() {
            println!(
                "{name}: lines {found:?}, not {lines:?}; predicted {predicted}; {wasted:#?}; left: {left:#?} {:?}",
                kinds(&cured)?
            );
            is_ok = false;
        }
    }
    Ok(is_ok & cumsum::check()? & in_place::check()?)
}

pub(crate) fn record(program: impl FnOnce(&Device) -> Result<()>) -> Outcome<Snapshot> {
    let session = memtrace::builder().uses(true).start()?;
    program(&Device::new_cuda(0)?)?;
    Ok(session.snapshot())
}

pub(crate) fn peak(snapshot: &Snapshot) -> Outcome<u64> {
    Ok(snapshot.device(memtrace::Device::Cuda(0)).ok_or("no GPU")?.peak.bytes)
}

fn wastes(snapshot: &Snapshot) -> Outcome<Vec<Waste>> {
    Ok(waste(&DeviceView::of(snapshot, snapshot.device(memtrace::Device::Cuda(0)).ok_or("no GPU")?)))
}

/// The kinds of findings without `in_place`: these programs do not write in place.
pub(crate) fn kinds(snapshot: &Snapshot) -> Outcome<Vec<&'static str>> {
    let device = snapshot.device(memtrace::Device::Cuda(0)).ok_or("no GPU")?;
    Ok(findings(&DeviceView::of(snapshot, device))
        .iter()
        .map(|finding| finding.kind.word())
        .filter(|kind| *kind != "in_place")
        .collect())
}

/// The number of the line of this file; 0 if it is of another file.
fn line(text: &str) -> u32 {
    let after = text.split_once("src/planted.rs:").map_or("", |(_, after)| after);
    after.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Shape of 2 MiB.
const SHAPE: (usize, usize) = (512, 1024);

/// `let x = f(&x)` keeps the old tensor to the end of the function.
fn shadowed(device: &Device, cured: bool) -> Result<Vec<[u32; 2]>> {
    if cured {
        return reassigned(device);
    }
    let first = line!() + 1;
    let x = Tensor::ones(SHAPE, DType::F32, device)?;
    let x = x.sqr()?;
    let x = x.sqrt()?;
    let x = x.exp()?;
    x.to_vec2::<f32>()?;
    Ok(vec![[first, first + 1], [first + 1, first + 2]])
}

fn reassigned(device: &Device) -> Result<Vec<[u32; 2]>> {
    let mut x = Tensor::ones(SHAPE, DType::F32, device)?;
    x = x.sqr()?;
    x = x.sqrt()?;
    x = x.exp()?;
    x.to_vec2::<f32>()?;
    Ok(Vec::new())
}

/// What attention returned is in a variable while the next part of the layer runs.
fn held_over_a_layer(device: &Device, cured: bool) -> Result<Vec<[u32; 2]>> {
    let mut x = Tensor::ones(SHAPE, DType::F32, device)?;
    let mut lines = Vec::new();
    for _ in 0..3 {
        let allocated = line!() + 1;
        let attended = x.affine(0.5, 1.)?;
        let sum = (&x + &attended)?;
        lines = vec![[allocated, line!() - 1]];
        if cured {
            drop(attended);
            x = mlp(sum)?;
        } else {
            x = mlp(sum)?;
            drop(attended);
        }
    }
    x.sum_all()?.to_scalar::<f32>()?;
    Ok(lines)
}

/// Needs three times its input.
fn mlp(x: Tensor) -> Result<Tensor> {
    let wide = Tensor::cat(&[&x, &x], 1)?;
    wide.narrow(1, 0, x.dim(1)?)? + x
}

struct Model {
    weights: Tensor,
    table: Option<Tensor>,
}

/// The model keeps a table that only its constructor reads.
fn held_in_a_structure(device: &Device, cured: bool) -> Result<Vec<[u32; 2]>> {
    let allocated = line!() + 1;
    let table = Tensor::ones(SHAPE, DType::F32, device)?;
    let weights = table.sqr()?;
    let used = line!() - 1;
    let model = Model { weights, table: (!cured).then_some(table) };
    let out = model.weights.sqrt()?;
    (&out + &model.weights)?.to_vec2::<f32>()?;
    drop(model.table);
    Ok(vec![[allocated, used]])
}

/// A list of losses keeps the graphs of all steps; the peak is in the validation.
fn kept_graph(device: &Device, cured: bool) -> Result<Vec<[u32; 2]>> {
    let weights = Var::from_tensor(&Tensor::ones((1024, 1024), DType::F32, device)?)?;
    let layer = Linear::new(weights.as_tensor().clone(), None);
    let x = Tensor::ones(SHAPE, DType::F32, device)?;
    let mut losses = Vec::new();
    let mut lines = Vec::new();
    for _ in 0..4 {
        let hidden = line!() + 1;
        let y = layer.forward(&x)?;
        let squares = line!() + 1;
        let squared = y.sqr()?;
        let loss = squared.sum_all()?;
        let backward = line!() + 1;
        loss.backward()?;
        lines = vec![[hidden, backward], [squares, backward - 2]];
        losses.push(if cured { loss.detach() } else { loss });
    }
    let validation = Tensor::ones((4096, 1024), DType::F32, device)?;
    layer.forward(&validation)?.sum_all()?.to_scalar::<f32>()?;
    x.sum_all()?.to_scalar::<f32>()?;
    Ok(lines)
}

/// A cache of eight pages, for more tokens than there are.
fn oversized_cache(device: &Device, cured: bool) -> Result<Vec<[u32; 2]>> {
    let device = device.as_cuda_device()?;
    let pages = if cured { 3 } else { 8 };
    let allocated = line!() + 2;
    // SAFETY: nothing reads what was not written.
    let mut pages = (0..pages).map(|_| unsafe { device.alloc::<f32>(1 << 18) }).collect::<Result<Vec<_>>>()?;
    for page in pages.iter_mut().take(3) {
        device.cuda_stream().memset_zeros(page).w()?;
        device.clone_dtoh(page)?;
    }
    Ok(vec![[allocated, 0]])
}
