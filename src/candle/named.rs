//! A `VarBuilder` that names every parameter by its path.

use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::Init;
use candle_nn::var_builder::{SimpleBackend, VarBuilder};

use super::tags::parameter;

/// Wraps a builder, so that each parameter that it returns is named by its path and gets the category PARAMETER.
///
/// The result has the prefix and dtype of the original builder. It differs in one point: after `to_dtype`, its
/// `get_unchecked` returns tensors of the new dtype, and that of the original returns tensors of the dtype before
/// `to_dtype`.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// use candle_core::{DType, Device};
/// use candle_nn::{VarBuilder, VarMap};
///
/// let session = memtrace::start()?;
/// let weights = VarMap::new();
/// let build = memtrace::candle::named(VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu));
/// let layer = candle_nn::linear(64, 32, build.pp("head"))?;
/// assert!(session.snapshot().report().to_string().contains("head.weight f32[32, 64]"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn named(build: VarBuilder<'_>) -> VarBuilder<'_> {
    let (prefix, dtype, device) = (build.prefix(), build.dtype(), build.device().clone());
    let named = VarBuilder::from_backend(Box::new(NamingBackend(build.root())), dtype, device);
    if prefix.is_empty() { named } else { named.set_prefix(prefix) }
}

struct NamingBackend<'a>(VarBuilder<'a>);

impl NamingBackend<'_> {
    fn on(&self, device: &Device) -> VarBuilder<'_> {
        let same = self.0.clone();
        if same.device().same_device(device) { same } else { same.set_device(device.clone()) }
    }
}

impl SimpleBackend for NamingBackend<'_> {
    fn get(&self, shape: Shape, name: &str, init: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        let tensor = self.on(device).get_with_hints_dtype(shape, name, init, dtype)?;
        parameter(&tensor, name);
        Ok(tensor)
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        let tensor = self.on(device).get_unchecked_dtype(name, dtype)?;
        parameter(&tensor, name);
        Ok(tensor)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.0.contains_tensor(name)
    }
}
