//! Trains a perceptron with burn on the first GPU, without memtrace in the program.

use burn::backend::cuda::CudaDevice;
use burn::backend::{Autodiff, Cuda};
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor};

type Gpu = Autodiff<Cuda>;

#[derive(Module, Debug)]
struct Perceptron<B: Backend> {
    hidden: Linear<B>,
    head: Linear<B>,
}

impl<B: Backend> Perceptron<B> {
    fn new(device: &B::Device) -> Self {
        let hidden = LinearConfig::new(1024, 2048).init(device);
        Self { hidden, head: LinearConfig::new(2048, 10).init(device) }
    }

    fn forward(&self, images: Tensor<B, 2>) -> Tensor<B, 2> {
        self.head.forward(Relu::new().forward(self.hidden.forward(images)))
    }
}

fn main() {
    let device = CudaDevice::new(0);
    let mut model = Perceptron::<Gpu>::new(&device);
    let mut optimizer = AdamConfig::new().init();
    for step in 0..5 {
        let images = Tensor::<Gpu, 2>::random([64, 1024], Distribution::Default, &device);
        let labels = Tensor::<Gpu, 1, Int>::zeros([64], &device);
        let loss = CrossEntropyLossConfig::new().init(&device).forward(model.forward(images), labels);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-3, model, gradients);
        println!("step {step}: loss {:?}", loss.into_data().shape);
    }
    println!("done");
}
