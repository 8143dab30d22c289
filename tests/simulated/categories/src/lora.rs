//! Low-rank adapters over a frozen model in half precision. Several checkpoints of the model are tried before the last is taken:
//! each one's weights replace the weights of the one before.

use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, loss, ops};

use crate::truth::Truth;

const WIDTH: usize = 128;
const CLASSES: usize = 32;
const LAYERS: usize = 3;
const RANK: usize = 4;
const BATCH: usize = 48;

/// Weights in half precision, as from a file.
fn load(truth: &Truth, device: &Device) -> Result<Vec<Tensor>> {
    let weights = truth.while_loading(|| {
        let layers = (0..LAYERS)
            .map(|_| Tensor::full(0.01f32, (WIDTH, WIDTH), &Device::Cpu)?.to_dtype(DType::F16)?.to_device(device));
        layers.collect::<Result<Vec<_>>>()
    })?;
    truth.are_parameters(&weights);
    Ok(weights)
}

struct Adapter {
    down: Var,
    up: Var,
}

fn adapted(base: &[Tensor], adapters: &[Adapter], x: &Tensor) -> Result<Tensor> {
    let mut x = x.clone();
    for (weight, Adapter { down, up }) in base.iter().zip(adapters) {
        let change = x.matmul(down)?.matmul(up)?;
        let frozen = x.to_dtype(DType::F16)?.matmul(weight)?.to_dtype(DType::F32)?;
        x = (frozen + (change * 2.)?)?.gelu()?;
    }
    Ok(x)
}

fn tried(base: &[Tensor], x: &Tensor) -> Result<f32> {
    let mut x = x.to_dtype(DType::F16)?;
    for weight in base {
        x = x.matmul(weight)?.gelu()?;
    }
    x.to_dtype(DType::F32)?.mean_all()?.to_scalar()
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let mut base = load(truth, device)?;
    for _ in 0..3 {
        let x = truth.while_reading(|| Tensor::randn(0f32, 1., (BATCH, WIDTH), device))?;
        truth.on_the_way_there(|| tried(&base, &x))?;
        base = load(truth, device)?;
    }
    let new = || {
        let (down, up) =
            (Var::randn(0f32, 0.02, (WIDTH, RANK), device)?, Var::zeros((RANK, WIDTH), DType::F32, device)?);
        Ok::<_, candle_core::Error>(Adapter { down, up })
    };
    let (adapters, head) = truth.while_loading(|| {
        let adapters = (0..LAYERS).map(|_| new()).collect::<Result<Vec<_>>>()?;
        Ok::<_, candle_core::Error>((adapters, Var::randn(0f32, 0.02, (WIDTH, CLASSES), device)?))
    })?;
    let mut vars: Vec<Var> = adapters.iter().flat_map(|Adapter { down, up }| [down.clone(), up.clone()]).collect();
    vars.push(head.clone());
    truth.are_parameters(vars.iter().map(|var| var.as_tensor()));
    let mut optimizer = truth.while_updating(|| AdamW::new_lr(vars.clone(), 1e-4))?;
    for step in 0..5u32 {
        let x = truth.while_reading(|| Tensor::randn(0f32, 1., (BATCH, WIDTH), device))?;
        let labels = vec![step; BATCH];
        let labels = truth.while_reading(|| Tensor::from_vec(labels, BATCH, device))?;
        let loss = truth.on_the_way_there(|| {
            let logits = adapted(&base, &adapters, &x)?.matmul(&head)?;
            loss::nll(&ops::log_softmax(&logits, D::Minus1)?, &labels)
        })?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &vars);
        truth.while_updating(|| optimizer.step(&gradients))?;
    }
    Ok(())
}
