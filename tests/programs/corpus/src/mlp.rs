//! A perceptron with three layers, trained with candle's AdamW.

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarBuilder, VarMap};

use crate::op;

const WIDTH: usize = 192;

struct Layer {
    weight: Tensor,
    bias: Tensor,
}

impl Layer {
    fn new(build: &VarBuilder<'_>, inputs: usize, outputs: usize) -> Result<Self> {
        let init = candle_nn::init::DEFAULT_KAIMING_NORMAL;
        let weight = op!("get", build.get_with_hints((outputs, inputs), "weight", init))?;
        let bias = op!("get", build.get_with_hints(outputs, "bias", candle_nn::init::ZERO))?;
        Ok(Self { weight, bias })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = op!("matmul", x.matmul(&self.weight.t()?))?;
        op!("broadcast_add", x.broadcast_add(&self.bias))
    }
}

/// Generic over the activation, which is a closure.
fn network<F: Fn(&Tensor) -> Result<Tensor>>(layers: &[Layer], x: &Tensor, activation: F) -> Result<Tensor> {
    let (last, hidden) = layers.split_last().expect("there are layers");
    let x = hidden.iter().try_fold(x.clone(), |x, layer| activation(&layer.forward(&x)?))?;
    last.forward(&x)
}

async fn scaled(x: &Tensor) -> Result<Tensor> {
    std::future::ready(()).await;
    let factor = op!("full", Tensor::full(2f32, x.dims(), x.device()))?;
    std::future::ready(()).await;
    op!("div", x / factor)
}

/// The value of a future that is ready at once.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => unreachable!("nothing in it waits"),
    }
}

fn loss(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let log_softmax = op!("LOG_SOFTMAX", candle_nn::ops::log_softmax(logits, D::Minus1))?;
    op!("nll", candle_nn::loss::nll(&log_softmax, targets))
}

pub(crate) fn train() -> Result<()> {
    let device = Device::Cpu;
    let weights = VarMap::new();
    let build = VarBuilder::from_varmap(&weights, DType::F32, &device);
    let layers = [(64, WIDTH), (WIDTH, WIDTH), (WIDTH, 10)];
    let layers =
        layers.iter().enumerate().map(|(n, (i, o))| Layer::new(&build.pp(n), *i, *o)).collect::<Result<Vec<_>>>()?;
    let mut optimizer = op!("new", AdamW::new(weights.all_vars(), ParamsAdamW::default()))?;
    let data = op!("randn", Tensor::randn(0f32, 1., (128, 64), &device))?;
    let targets = op!("zeros", Tensor::zeros(128, DType::U32, &device))?;
    for _ in 0..4 {
        let logits = ready(async { network(&layers, &data, |x| op!("gelu_erf", x.gelu_erf())) })?;
        let logits = ready(scaled(&logits))?;
        let loss = loss(&logits, &targets)?;
        let gradients = op!("backward", loss.backward())?;
        op!("step", optimizer.step(&gradients))?;
        let kept = op!("to_dtype", logits.to_dtype(DType::F64))?;
        drop(op!("exp", kept.exp())?);
    }
    Ok(())
}
