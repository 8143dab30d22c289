//! Mean teacher: the moving average of the student's weights is computed without detach.

use super::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::{Linear, Module, Optimizer, SGD, VarBuilder, VarMap, linear, loss};

struct Student {
    body: Linear,
    head: Linear,
}

impl Student {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.body.forward(x)?.gelu()?;
        Ok(self.head.forward(&hidden)?)
    }
}

fn blend(teacher: &Tensor, student: &Tensor) -> Result<Tensor> {
    let next = ((teacher * 0.98)? + (student * 0.02)?)?; // <- grows
    Ok(next)
}

pub(super) fn run() -> Result<()> {
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    let student = Student { body: linear(256, 320, vb.pp("body"))?, head: linear(320, 10, vb.pp("head"))? };
    let params = vars.all_vars();
    let mut teacher = Vec::new();
    for p in &params {
        teacher.push(p.as_detached_tensor().copy()?);
    }
    let mut sgd = SGD::new(params.clone(), 1e-2)?;
    for step in 0..50 {
        let x = Tensor::randn(0f32, 1., (32, 256), &Device::Cpu)?;
        let y = Tensor::new((0..32).map(|i| (i + step) % 10).collect::<Vec<u32>>(), &Device::Cpu)?;
        sgd.backward_step(&loss::cross_entropy(&student.forward(&x)?, &y)?)?;
        for (average, p) in teacher.iter_mut().zip(&params) {
            *average = blend(average, p)?;
        }
    }
    let norm = teacher[0].sqr()?.sum_all()?.to_scalar::<f32>()?;
    println!("squared norm of the first teacher weight {norm:.3}");
    Ok(())
}
