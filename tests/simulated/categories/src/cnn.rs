//! A small convolutional network (CNN): convolutions, batch norms and SGD; the data set is uploaded once.

use candle_core::{D, DType, Device, Module, ModuleT, Result, Tensor};
use candle_nn::{
    BatchNorm, Conv2d, Conv2dConfig, Linear, Optimizer, SGD, VarBuilder, VarMap, batch_norm, conv2d, linear, loss,
};
use memtrace::Category::Input;

use crate::truth::Truth;

const PICTURES: usize = 512;
const BATCH: usize = 64;

struct Network {
    convolutions: [(Conv2d, BatchNorm); 2],
    hidden: Linear,
    out: Linear,
}

impl Network {
    fn new(build: &VarBuilder<'_>) -> Result<Self> {
        let convolution = |inputs, outputs, build: VarBuilder<'_>| {
            let config = Conv2dConfig { padding: 1, ..Default::default() };
            let norm = batch_norm(outputs, 1e-5, build.pp("norm"))?;
            Result::Ok((conv2d(inputs, outputs, 3, config, build.pp("conv"))?, norm))
        };
        Ok(Self {
            convolutions: [convolution(1, 16, build.pp(0))?, convolution(16, 32, build.pp(1))?],
            hidden: linear(32 * 7 * 7, 128, build.pp("hidden"))?,
            out: linear(128, 10, build.pp("out"))?,
        })
    }
}

impl ModuleT for Network {
    fn forward_t(&self, pictures: &Tensor, train: bool) -> Result<Tensor> {
        let mut x = pictures.clone();
        for (convolution, norm) in &self.convolutions {
            x = norm.forward_t(&convolution.forward(&x)?, train)?.relu()?.max_pool2d(2)?;
        }
        self.out.forward(&self.hidden.forward(&x.flatten_from(1)?)?.relu()?)
    }
}

/// Pictures and their labels.
struct Data {
    pictures: Tensor,
    labels: Tensor,
}

impl Data {
    /// Created on the host, then uploaded.
    fn load(device: &Device) -> Result<Self> {
        let pixels: Vec<f32> = (0..PICTURES * 28 * 28).map(|n| (n % 256) as f32 / 255.).collect();
        let labels: Vec<u32> = (0..PICTURES as u32).map(|n| n % 10).collect();
        let pictures = Tensor::from_vec(pixels, (PICTURES, 1, 28, 28), &Device::Cpu)?.to_device(device)?;
        Ok(Self { pictures, labels: Tensor::from_vec(labels, PICTURES, &Device::Cpu)?.to_device(device)? })
    }

    /// In their own order.
    fn batch(&self, n: usize) -> Result<Self> {
        let part = |data: &Tensor| data.narrow(0, n * BATCH, BATCH);
        Ok(Self { pictures: part(&self.pictures)?, labels: part(&self.labels)? })
    }

    /// In another order.
    fn shuffled(&self, truth: &Truth, n: usize) -> Result<Self> {
        let order: Vec<u32> = (0..BATCH).map(|at| ((n * BATCH + at) * 7 % PICTURES) as u32).collect();
        let order = Tensor::from_vec(order, BATCH, self.labels.device())?;
        truth.is(&order, Input);
        let part = |data: &Tensor| data.index_select(&order, 0);
        Ok(Self { pictures: part(&self.pictures)?, labels: part(&self.labels)? })
    }
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let data = truth.while_reading(|| Data::load(device))?;
    let weights = VarMap::new();
    let network = truth.while_loading(|| Network::new(&VarBuilder::from_varmap(&weights, DType::F32, device)))?;
    let vars = crate::variables(&weights);
    let mut optimizer = truth.while_updating(|| SGD::new(vars.clone(), 0.05))?;
    for step in 0..8 {
        let batch = truth.while_reading(|| if step < 4 { data.batch(step) } else { data.shuffled(truth, step) })?;
        let loss = truth
            .on_the_way_there(|| loss::cross_entropy(&network.forward_t(&batch.pictures, true)?, &batch.labels))?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &vars);
        truth.while_updating(|| optimizer.step(&gradients))?;
    }
    for n in 0..2 {
        let batch = truth.while_reading(|| data.batch(n))?;
        truth.on_the_way_there(|| network.forward_t(&batch.pictures, false)?.argmax(D::Minus1)?.to_vec1::<u32>())?;
    }
    Ok(())
}
