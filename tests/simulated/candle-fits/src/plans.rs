//! Programs that hold more than they need, and the same changed by hand as `plan` says, if `planned`.

use candle_core::{DType, Device, Result, Tensor, Var};

/// Work that holds three matrices of this size at once, in more operations than a value has to be idle for (docs/findings.md).
fn work(size: usize, device: &Device) -> Result<f32> {
    let mut xs = Tensor::zeros((size, size), DType::F32, device)?;
    for _ in 0..12 {
        xs = xs.matmul(&xs)?.add(&xs)?;
    }
    xs.flatten_all()?.sum(0)?.to_scalar()
}

/// A tensor stays until its function ends, but nothing uses it any more.
pub fn freed_earlier(planned: bool, device: &Device) -> Result<()> {
    let features = Tensor::zeros((2048, 2048), DType::F32, device)?.exp()?;
    let sum = features.flatten_all()?.sum(0)?.to_scalar::<f32>()?;
    let mut kept = Some(features);
    if planned {
        kept = None;
    }
    println!("{} {}", sum, work(1500, device)?);
    drop(kept);
    Ok(())
}

/// A table that only the last lines use.
pub fn allocated_later(planned: bool, device: &Device) -> Result<()> {
    let table = || Tensor::zeros((3000, 1024), DType::F32, device);
    let early = if planned { None } else { Some(table()?) };
    let worked = work(1500, device)?;
    let table = match early {
        Some(table) => table,
        None => table()?,
    };
    println!("{} {worked}", table.flatten_all()?.sum(0)?.to_scalar::<f32>()?);
    Ok(())
}

/// Losses that are kept for a mean, and keep what they were computed from.
pub fn kept_graphs(planned: bool, device: &Device) -> Result<()> {
    let weight = Var::zeros((1024, 1024), DType::F32, device)?;
    let mut losses = Vec::new();
    for _ in 0..6 {
        let xs = Tensor::zeros((256, 1024), DType::F32, device)?;
        let loss = xs.matmul(&weight)?.sqr()?.tanh()?.mean_all()?;
        let gradients = loss.backward()?;
        if let Some(gradient) = gradients.get(&weight) {
            weight.set(&(weight.as_tensor() - (gradient * 0.1)?)?)?;
        }
        losses.push(if planned { loss.detach() } else { loss });
    }
    println!("{:?}", Tensor::stack(&losses, 0)?.mean_all()?.to_scalar::<f32>()?);
    Ok(())
}

/// A tensor that is used before and after other work.
pub fn moved_to_host(planned: bool, device: &Device) -> Result<()> {
    let cache = Tensor::zeros((2500, 1000), DType::F32, device)?.exp()?;
    let before = cache.flatten_all()?.sum(0)?.to_scalar::<f32>()?;
    let worked;
    let cache = if planned {
        let host = cache.to_device(&Device::Cpu)?;
        drop(cache);
        worked = work(1500, device)?;
        host.to_device(device)?
    } else {
        worked = work(1500, device)?;
        cache
    };
    let after = cache.sqr()?.flatten_all()?.sum(0)?.to_scalar::<f32>()?;
    println!("{before} {worked} {after}");
    Ok(())
}

/// Weights that each token uses once: the first two are on the host in between.
pub fn between_tokens(planned: bool, device: &Device) -> Result<()> {
    let weight = |layer: usize| {
        let weight = Tensor::ones((1000, 1000), DType::F32, device)?;
        if planned && layer < 2 { weight.to_device(&Device::Cpu) } else { Ok(weight) }
    };
    let weights: Vec<Tensor> = (0..6).map(weight).collect::<Result<_>>()?;
    let mut xs = Tensor::zeros((8, 1000), DType::F32, device)?;
    for _ in 0..20 {
        xs = xs.tanh()?;
    }
    for _token in 0..4 {
        for weight in &weights {
            xs = xs.matmul(&weight.to_device(device)?)?;
            for _ in 0..4 {
                xs = xs.tanh()?;
            }
        }
    }
    println!("{:?}", xs.flatten_all()?.sum(0)?.to_scalar::<f32>()?);
    Ok(())
}

/// Two of these in one program. Beside a graph no plan drops `embedded`: for all that is known, what was computed from it keeps it.
pub fn several(planned: bool, device: &Device) -> Result<()> {
    let embedded = Tensor::zeros((1200, 1024), DType::F32, device)?.exp()?;
    let positions = || Tensor::zeros((1000, 1024), DType::F32, device);
    let early = if planned { None } else { Some(positions()?) };
    let pooled = embedded.sum(0)?;
    let weight = Var::zeros((1024, 1024), DType::F32, device)?;
    let (mut losses, mut numbers) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let xs = Tensor::zeros((512, 1024), DType::F32, device)?.broadcast_add(&pooled)?;
        let loss = xs.matmul(&weight)?.sqr()?.mean_all()?;
        let _gradients = loss.backward()?;
        if planned {
            numbers.push(loss.to_scalar::<f32>()?);
        } else {
            losses.push(loss);
        }
    }
    let positions = match early {
        Some(positions) => positions,
        None => positions()?,
    };
    for loss in losses {
        numbers.push(loss.to_scalar::<f32>()?);
    }
    println!("{numbers:?} {}", positions.flatten_all()?.sum(0)?.to_scalar::<f32>()?);
    Ok(())
}
