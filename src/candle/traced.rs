//! A module wrapper that opens a scope in `forward`.

use candle_core::{Module, Result, Tensor};

use super::tags::put;
use crate::record::{BlockLabel, own};

/// A module with a name. Tables by module and by scope list the allocations in `forward` under that name. The block of
/// the module's output is called `output of NAME`, unless that block has a name already.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// use candle_core::{DType, Device, Module, Tensor};
/// use memtrace::candle::Traced;
///
/// let session = memtrace::start()?;
/// let weight = Tensor::ones((256, 256), DType::F32, &Device::Cpu)?;
/// let head = Traced::new("head", candle_nn::Linear::new(weight, None));
/// let output = head.forward(&Tensor::ones((8, 256), DType::F32, &Device::Cpu)?)?;
/// assert!(session.snapshot().report().to_string().contains("output of head f32[8, 256]"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Traced<M> {
    name: String,
    inner: M,
}

impl<M> Traced<M> {
    /// Wraps a module.
    pub fn new(name: impl Into<String>, inner: M) -> Self {
        Self { name: name.into(), inner }
    }

    /// The wrapped module.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// Unwraps the module.
    pub fn into_inner(self) -> M {
        self.inner
    }
}

impl<M: Module> Module for Traced<M> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        crate::module(&self.name, || {
            let output = self.inner.forward(input)?;
            own(|| {
                let name = format!("output of {}", self.name);
                put(&output, BlockLabel { if_new: true, ..name.as_str().into() })
            });
            Ok(output)
        })
    }
}
