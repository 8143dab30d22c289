//! Checkpointing for candle: a module that keeps nothing but its result for the backward pass, and runs again there.
//!
//! The input must lead back to a variable. Random numbers (dropout) would differ the second time.

use std::sync::{Arc, Mutex};

use candle_core::backend::{BackendDevice, BackendStorage};
use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, CudaStorage, CustomOp1, Layout, Module, Result, Shape, Storage, Tensor, Var};

/// Gradients of checkpointed modules' variables.
#[derive(Clone, Default)]
pub(crate) struct Gradients(Arc<Mutex<Vec<(Var, Tensor)>>>);

impl Gradients {
    /// Adds them to those of the pass that made them.
    pub(crate) fn add_to(&self, found: &mut GradStore) -> Result<()> {
        for (var, gradient) in self.0.lock().unwrap().drain(..) {
            let sum = found.remove(&var).map_or(Ok(gradient.clone()), |other| other + gradient)?;
            found.insert(&var, sum);
        }
        Ok(())
    }
}

/// A checkpointed module with its variables.
pub(crate) struct Checkpointed<M> {
    pub(crate) module: Arc<M>,
    pub(crate) vars: Vec<Var>,
    pub(crate) gradients: Gradients,
}

impl<M: Module + Send + Sync + 'static> Module for Checkpointed<M> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let result = self.module.forward(x)?;
        let (module, vars, gradients) = (self.module.clone(), self.vars.clone(), self.gradients.clone());
        x.apply_op1(Again { module, vars, gradients, result: Mutex::new(Some(result.detach())) })
    }
}

/// A call as one node of the graph.
struct Again<M> {
    module: Arc<M>,
    vars: Vec<Var>,
    gradients: Gradients,
    result: Mutex<Option<Tensor>>,
}

impl<M> Again<M> {
    fn result(&self) -> Result<Tensor> {
        self.result.lock().unwrap().take().map_or_else(|| candle_core::bail!("it is called once"), Ok)
    }
}

impl<M: Module> CustomOp1 for Again<M> {
    fn name(&self) -> &'static str {
        "checkpoint"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        let result = self.result()?;
        let (storage, layout) = result.storage_and_layout();
        match &*storage {
            Storage::Cpu(storage) => copy(storage, layout),
            _ => candle_core::bail!("the module changed the device"),
        }
    }

    fn cuda_fwd(&self, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        let result = self.result()?;
        let (storage, layout) = result.storage_and_layout();
        match &*storage {
            Storage::Cuda(storage) => copy(storage, layout),
            _ => candle_core::bail!("the module changed the device"),
        }
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let x = Var::from_tensor(&x.detach())?;
        let result = self.module.forward(&x)?;
        let mut found = result.apply_op1(Begin(gradient.clone()))?.backward()?;
        // Detached, because a gradient keeps what it was computed from.
        let of_vars = self.vars.iter().filter_map(|var| Some((var.clone(), found.remove(var)?.detach())));
        self.gradients.0.lock().unwrap().extend(of_vars);
        Ok(found.remove(&x).map(|gradient| gradient.detach()))
    }
}

/// Also of a view.
fn copy<S: BackendStorage>(from: &S, layout: &Layout) -> Result<(S, Shape)>
where
    S::Device: BackendDevice<Storage = S>,
{
    let mut to = from.device().zeros_impl(layout.shape(), from.dtype())?;
    from.copy_strided_src(&mut to, 0, layout)?;
    Ok((to, layout.shape().clone()))
}

/// Begins a backward pass with this gradient.
struct Begin(Tensor);

impl CustomOp1 for Begin {
    fn name(&self) -> &'static str {
        "begin"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((candle_core::cpu_backend::CpuDevice.zeros_impl(&().into(), storage.dtype())?, ().into()))
    }

    fn cuda_fwd(&self, storage: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        Ok((storage.device().zeros_impl(&().into(), storage.dtype())?, ().into()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, _: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(self.0.clone()))
    }
}
