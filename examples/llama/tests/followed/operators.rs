//! Operators that need much memory for a moment.

use super::*;

pub(super) const PROGRAMS: &[Program] = &[
    ("a running sum of a row", "square", |cured| running_sum((1, 2048), DType::F32, cured)),
    ("running sums of columns", "square", |cured| running_sum((16, 1024), DType::F32, cured)),
    ("a running sum in f64", "square", |cured| running_sum((4, 1024), DType::F64, cured)),
    ("a wide filter", "operator_temporaries", |cured| filter(32, 1 << 14, cured)),
    ("a wider filter of a shorter signal", "operator_temporaries", |cured| filter(64, 1 << 12, cured)),
];

fn running_sum(shape: (usize, usize), dtype: DType, cured: bool) -> Result<Kept> {
    const PART: usize = 64;
    let x = Tensor::ones(shape, dtype, CPU)?;
    if !cured {
        return Ok(Box::new(x.cumsum(1)?));
    }
    let mut so_far = Tensor::zeros((shape.0, 1), dtype, CPU)?;
    let part = |start| {
        let sums = x.narrow(1, start, PART)?.cumsum(1)?.broadcast_add(&so_far)?;
        so_far = sums.narrow(1, PART - 1, 1)?;
        Ok(sums)
    };
    let parts = (0..shape.1).step_by(PART).map(part).collect::<Result<Vec<_>>>()?;
    Ok(Box::new(Tensor::cat(&parts, 1)?))
}

fn filter(width: usize, length: usize, cured: bool) -> Result<Kept> {
    const PARTS: usize = 32;
    let signal = Tensor::randn(0f32, 1., (1, 1, length + width - 1), CPU)?;
    let kernel = Tensor::randn(0f32, 1., (1, 1, width), CPU)?;
    if !cured {
        return Ok(Box::new(signal.conv1d(&kernel, 0, 1, 1, 1)?));
    }
    let part = length / PARTS;
    let filtered = |at: usize| signal.narrow(2, at * part, part + width - 1)?.conv1d(&kernel, 0, 1, 1, 1);
    Ok(Box::new((0..PARTS).map(filtered).collect::<Result<Vec<_>>>()?))
}
