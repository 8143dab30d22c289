//! An activation whose output has memory of its own, and the same written over its input by candle's `inplace_op1`.

#![allow(unsafe_code, reason = "launches a kernel")]

use candle_core::backend::BackendStorage;
use candle_core::cuda_backend::{CudaStorage, WrapErr, kernels};
use candle_core::{CpuStorage, DType, Device, InplaceOp1, Layout, Result, Tensor};
use cudarc::driver::{DevicePtrMut, LaunchConfig, PushKernelArg};
use memtrace::analysis::in_place;
use memtrace::report::findings;
use memtrace::{Bytes, DeviceView};

use crate::Outcome;
use crate::planted::{peak, record};

/// Prints a row; false if the finding or the peak is not as expected.
pub(crate) fn check() -> Outcome<bool> {
    let values = |device: &Device| Tensor::ones((512, 1024), DType::F32, device);
    let line = line!() + 1;
    let apart = record(|device| values(device)?.silu()?.to_vec2::<f32>().map(drop))?;
    let in_one = record(|device| {
        let x = values(device)?;
        x.inplace_op1(&Silu)?;
        x.to_vec2::<f32>().map(drop)
    })?;
    let device = apart.device(memtrace::Device::Cuda(0)).ok_or("no GPU")?;
    let rows = in_place(&DeviceView::of(&apart, device));
    let predicted = rows.last().map_or(0, |row| row.peak_without);
    println!("| in place | {} | {} | {} |", Bytes(peak(&apart)?), Bytes(predicted), Bytes(peak(&in_one)?));
    let place = format!("src/in_place.rs:{line} ");
    let is_found = findings(&DeviceView::of(&apart, device)).iter().any(|row| row.kind.word() == "in_place")
        && matches!(&rows[..], [row] if row.line.contains(&place) && row.operator == "silu");
    let left = in_place(&DeviceView::of(&in_one, in_one.device(memtrace::Device::Cuda(0)).ok_or("no GPU")?));
    let is_ok = is_found && predicted == peak(&in_one)? && left.is_empty();
    if !is_ok {
        println!("in place: line {line}; {rows:#?}; left: {left:#?}");
    }
    Ok(is_ok)
}

/// candle's kernel with its input as its output.
struct Silu;

impl InplaceOp1 for Silu {
    fn name(&self) -> &'static str {
        "silu-in-place"
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout) -> Result<()> {
        candle_core::bail!("this program has a GPU")
    }

    fn cuda_fwd(&self, storage: &mut CudaStorage, layout: &Layout) -> Result<()> {
        let device = storage.device().clone();
        let stream = device.cuda_stream();
        let function = device.get_or_load_func("usilu_f32", &kernels::UNARY)?;
        let (values, dimensions, no_layout) = (layout.shape().elem_count(), layout.dims().len(), 0u64);
        let (at, _synced) = storage.as_cuda_slice_mut::<f32>()?.device_ptr_mut(&stream);
        let mut launch = function.builder();
        launch.arg(&values).arg(&dimensions).arg(&no_layout).arg(&at).arg(&at);
        // SAFETY: the kernel reads each element before it writes it; the tensor is contiguous.
        unsafe { launch.launch(LaunchConfig::for_num_elems(values as u32)) }.w()?;
        Ok(())
    }
}
