//! The running sum of 32,000 values: candle's `cumsum` makes a square matrix of 4 GB; in parts of 64 values it does not.

use candle_core::{DType, Device, Result, Tensor};
use memtrace::report::findings;
use memtrace::{Bytes, DeviceView};

use crate::Outcome;
use crate::planted::{kinds, peak, record};

/// Prints a row; false if the finding is not as expected.
pub(crate) fn check() -> Outcome<bool> {
    let values = |device: &Device| Tensor::ones(32_000, DType::F32, device);
    let sums = running_sum(Tensor::ones(5000, DType::F32, &Device::Cpu)?)?.to_vec1::<f32>()?;
    let is_right = sums.iter().enumerate().all(|(at, sum)| *sum == at as f32 + 1.);
    let allocated = line!() + 1;
    let whole = record(|device| values(device)?.cumsum(0)?.to_vec1::<f32>().map(drop))?;
    let in_parts = record(|device| running_sum(values(device)?)?.to_vec1::<f32>().map(drop))?;
    println!("| cumsum | {} | | {} |", Bytes(peak(&whole)?), Bytes(peak(&in_parts)?));
    let device = whole.device(memtrace::Device::Cuda(0)).ok_or("no GPU")?;
    let line = format!("src/cumsum.rs:{allocated} ");
    let is_named = findings(&DeviceView::of(&whole, device))
        .iter()
        .any(|row| row.line.as_ref().is_some_and(|at| at.contains(&line)));
    let is_ok = is_right && is_named && peak(&whole)? > 4 << 30 && kinds(&in_parts)?.is_empty();
    if !is_ok {
        println!("cumsum: {:?}; in parts: {:?}", kinds(&whole)?, kinds(&in_parts)?);
    }
    Ok(is_ok)
}

fn running_sum(x: Tensor) -> Result<Tensor> {
    const PART: usize = 64;
    let length = x.dim(0)?;
    if length <= PART {
        return x.cumsum(0);
    }
    let rows = length.div_ceil(PART);
    let sums = x.pad_with_zeros(0, 0, rows * PART - length)?.reshape((rows, PART))?.cumsum(1)?;
    drop(x);
    let before = running_sum(sums.narrow(1, PART - 1, 1)?.flatten_all()?)?;
    let before = before.pad_with_zeros(0, 1, 0)?.narrow(0, 0, rows)?.unsqueeze(1)?;
    sums.broadcast_add(&before)?.flatten_all()?.narrow(0, 0, length)
}
