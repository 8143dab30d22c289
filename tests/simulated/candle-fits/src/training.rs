//! Training steps.

use candle_core::{DType, Device, Module, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, VarBuilder, VarMap, linear, linear_no_bias, loss, seq};

const BATCH: usize = 256;

fn labels(device: &Device) -> Result<Tensor> {
    Tensor::zeros(BATCH, DType::U32, device)
}

/// Four layers, trained by AdamW.
pub fn perceptron(device: &Device) -> Result<()> {
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, device);
    let mut model = seq();
    for (at, (from, to)) in [(1024, 4096), (4096, 4096), (4096, 4096), (4096, 10)].into_iter().enumerate() {
        model = model.add(linear(from, to, vb.pp(at))?).add(|xs: &Tensor| xs.relu());
    }
    let mut optimizer = AdamW::new_lr(vars.all_vars(), 1e-3)?;
    for _ in 0..3 {
        let input = Tensor::zeros((BATCH, 1024), DType::F32, device)?;
        let loss = loss::cross_entropy(&model.forward(&input)?, &labels(device)?)?;
        optimizer.backward_step(&loss)?;
    }
    println!("{} variables", vars.all_vars().len());
    Ok(())
}

/// Frozen layers, each with a trained sum of low rank.
pub fn lora(device: &Device) -> Result<()> {
    let frozen = VarBuilder::zeros(DType::F32, device);
    let vars = VarMap::new();
    let trained = VarBuilder::from_varmap(&vars, DType::F32, device);
    let layers = (0..8).map(|at| {
        let base = linear_no_bias(2048, 2048, frozen.pp(at))?;
        let (down, up) = (trained.pp(format!("{at}.down")), trained.pp(format!("{at}.up")));
        Ok((base, linear_no_bias(2048, 16, down)?, linear_no_bias(16, 2048, up)?))
    });
    let layers = layers.collect::<Result<Vec<_>>>()?;
    let head = linear(2048, 10, trained.pp("head"))?;
    let mut optimizer = AdamW::new_lr(vars.all_vars(), 1e-4)?;
    for _ in 0..3 {
        let mut xs = Tensor::zeros((BATCH, 2048), DType::F32, device)?;
        for (base, down, up) in &layers {
            xs = (base.forward(&xs)? + up.forward(&down.forward(&xs)?)?)?.gelu()?;
        }
        optimizer.backward_step(&loss::cross_entropy(&head.forward(&xs)?, &labels(device)?)?)?;
    }
    println!("{} variables", vars.all_vars().len());
    Ok(())
}

/// Gradients of four batches summed by hand before a step of gradient descent.
pub fn accumulated_gradients(device: &Device) -> Result<()> {
    let weights: Vec<Var> = (0..6).map(|_| Var::zeros((2048, 2048), DType::F32, device)).collect::<Result<_>>()?;
    for _ in 0..2 {
        let mut sums: Vec<Option<Tensor>> = vec![None; weights.len()];
        for _ in 0..4 {
            let mut xs = Tensor::zeros((BATCH, 2048), DType::F32, device)?;
            for weight in &weights {
                xs = xs.matmul(weight)?.tanh()?;
            }
            let mut gradients = xs.sqr()?.mean_all()?.backward()?;
            for (sum, weight) in sums.iter_mut().zip(&weights) {
                let Some(gradient) = gradients.remove(weight) else { continue };
                *sum = Some(match sum.take() {
                    Some(sum) => (sum + gradient)?,
                    None => gradient,
                });
            }
        }
        for (sum, weight) in sums.into_iter().zip(&weights) {
            let Some(sum) = sum else { continue };
            weight.set(&(weight.as_tensor() - (sum * 1e-3)?)?)?;
        }
    }
    println!("{} variables", weights.len());
    Ok(())
}
