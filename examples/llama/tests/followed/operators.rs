//! Operators that need much memory for a moment.

use super::*;

pub(super) const PROGRAMS: &[Program] = &[
    ("a running sum of a row", "square", |cured| running_sum((1, 2048), DType::F32, cured)),
    ("running sums of columns", "square", |cured| running_sum((16, 1024), DType::F32, cured)),
    ("a running sum in f64", "square", |cured| running_sum((4, 1024), DType::F64, cured)),
    ("a wide filter", "operator_temporaries", |cured| filter(32, 1 << 14, cured)),
    ("a wider filter of a shorter signal", "operator_temporaries", |cured| filter(64, 1 << 12, cured)),
];

/// Ten programs of each kind.
pub(super) fn certain() -> Vec<Sample> {
    let wide = [640, 768, 896, 1024, 1280].map(|length| (length, DType::F64));
    let sums = [1024, 1280, 1536, 1792, 2048].map(|length| (length, DType::F32)).into_iter().chain(wide);
    let sums = sums.map(|(length, dtype)| Box::new(move |cured| running_sum((1, length), dtype, cured)) as Sample);
    let filters = [24, 40, 64, 80, 96].into_iter().flat_map(|width| [(width, 1 << 12), (width, 1 << 13)]);
    let filters = filters.map(|(width, length)| Box::new(move |cured| filter(width, length, cured)) as Sample);
    sums.chain(filters).collect()
}

/// The number of parts that the advice recommends.
const PARTS: usize = 16;

fn running_sum(shape: (usize, usize), dtype: DType, cured: bool) -> Result<Kept> {
    let x = Tensor::ones(shape, dtype, CPU)?;
    // Other memory of the program. On some processors it would be the buffer of a product, on others nothing.
    let beside = Tensor::zeros(1 << 19, DType::F32, CPU)?;
    if !cured {
        return Ok(Box::new((x.cumsum(1)?, beside)));
    }
    let width = shape.1 / PARTS;
    let mut so_far = Tensor::zeros((shape.0, 1), dtype, CPU)?;
    let part = |start| {
        let sums = x.narrow(1, start, width)?.cumsum(1)?.broadcast_add(&so_far)?;
        so_far = sums.narrow(1, width - 1, 1)?;
        Ok(sums)
    };
    let parts = (0..shape.1).step_by(width).map(part).collect::<Result<Vec<_>>>()?;
    Ok(Box::new((Tensor::cat(&parts, 1)?, beside)))
}

fn filter(width: usize, length: usize, cured: bool) -> Result<Kept> {
    let signal = Tensor::randn(0f32, 1., (1, 1, length + width - 1), CPU)?;
    let kernel = Tensor::randn(0f32, 1., (1, 1, width), CPU)?;
    if !cured {
        return Ok(Box::new(signal.conv1d(&kernel, 0, 1, 1, 1)?));
    }
    let part = length / PARTS;
    let filtered = |at: usize| signal.narrow(2, at * part, part + width - 1)?.conv1d(&kernel, 0, 1, 1, 1);
    Ok(Box::new((0..PARTS).map(filtered).collect::<Result<Vec<_>>>()?))
}
