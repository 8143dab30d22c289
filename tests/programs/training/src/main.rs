//! Trains ResNet-50 and writes its recording: `training FILE [IMAGE] [REGRESSION]`. A regression is a memory bug as
//! people write it. Its line ends with `// planted: NAME`, which the test searches for.

#[path = "../../../../examples/resnet/model.rs"]
mod model;
#[path = "../../../../examples/resnet/sgd.rs"]
mod sgd;

use std::sync::mpsc::sync_channel;

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use memtrace::scope;
use model::ResNet50;
use sgd::SgdMomentum;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

const ITERATIONS: usize = 2;
const BATCH: usize = 2;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |at: usize| arguments.get(at).map_or("", String::as_str);
    let image = text(1).parse().unwrap_or(32);
    let session = memtrace::builder().min_size("4 KiB").start().expect("nothing else records");
    let mut training = Training::new(text(2).to_owned(), image).expect("random images suit the network");
    (0..ITERATIONS).try_for_each(|_| training.iteration()).expect("random images suit the network");
    session.snapshot().write(text(0)).expect("a folder to write to");
}

/// What lives from one iteration to the next.
struct Training {
    regression: String,
    model: ResNet50,
    optimizer: SgdMomentum,
    variables: Vec<Var>,
    loader: std::sync::mpsc::Receiver<Tensor>,
    labels: Tensor,
    gradients: Vec<Tensor>,
    history: Vec<f32>,
    /// Nothing, unless a regression keeps something.
    kept: Vec<Tensor>,
    bytes: Vec<u8>,
}

impl Training {
    fn new(regression: String, image: usize) -> Result<Self> {
        let varmap = VarMap::new();
        let build = VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu);
        let model = scope("load", || ResNet50::new(build))?;
        memtrace::candle::tag_varmap(&varmap);
        let variables = sorted(&varmap);
        let predictions = if regression == "predictions" { 1 << 20 } else { ITERATIONS };
        let labels = Tensor::new(vec![7_u32; BATCH], &Device::Cpu)?;
        let mut training = Self {
            optimizer: SgdMomentum::new(variables.clone(), 0.01, 0.9),
            loader: loader(image, if regression == "queue" { 40 } else { 2 }),
            history: Vec::with_capacity(predictions), // planted: predictions
            gradients: Vec::new(),
            kept: Vec::new(),
            bytes: Vec::new(),
            regression,
            model,
            variables,
            labels,
        };
        training.targets()?;
        Ok(training)
    }

    fn has(&self, regression: &str) -> bool {
        self.regression == regression
    }

    /// Labels as a matrix, for all images of the data set.
    fn targets(&mut self) -> Result<()> {
        if self.has("one_hot") {
            let matrix = Tensor::zeros((512, 1000), DType::F32, &Device::Cpu)?; // planted: one_hot
            self.kept.push(matrix);
        }
        Ok(())
    }

    fn iteration(&mut self) -> Result<()> {
        let images = self.loader.recv().map_err(candle_core::Error::wrap)?;
        let images = scope("augment", || self.augmented(images))?;
        let loss = scope("forward", || {
            let logits = self.model.forward(&images)?;
            candle_nn::loss::cross_entropy(&logits, &self.labels)
        })?;
        self.history.push(loss.to_scalar()?);
        scope("backward", || self.backward(&loss))?;
        if self.has("losses") {
            self.kept.push(loss);
        }
        scope("optimizer", || self.step())
    }

    fn augmented(&mut self, images: Tensor) -> Result<Tensor> {
        if self.has("mask") {
            let shape = (BATCH * 16, images.dim(1)?, images.dim(2)?, images.dim(3)?);
            let mask = Tensor::ones((1, 1, 1, 1), DType::F32, &Device::Cpu)?.broadcast_as(shape)?;
            self.kept.push(mask.contiguous()?); // planted: mask
        }
        if self.has("checkpoint") {
            for variable in &self.variables {
                let values = variable.flatten_all()?.to_vec1::<f32>()?;
                self.bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())); // planted: checkpoint
            }
        }
        images.affine(2.0, -1.0)
    }

    /// Keeps the gradients for a log of their norms. A gradient keeps the graph that it was computed with, unless it is
    /// detached.
    fn backward(&mut self, loss: &Tensor) -> Result<()> {
        let store = loss.backward()?; // planted: gradients
        let keeps_graph = self.has("gradients");
        let gradients = self.variables.iter().filter_map(|variable| store.get(variable));
        self.gradients =
            gradients.map(|gradient| if keeps_graph { gradient.clone() } else { gradient.detach() }).collect();
        self.optimizer.step(&store)
    }

    /// What follows the optimizer's own step.
    fn step(&mut self) -> Result<()> {
        for variable in &self.variables {
            if self.has("average") {
                self.kept.push(variable.as_detached_tensor().copy()?); // planted: average
            }
            if self.has("moment") && self.kept.len() < self.variables.len() {
                self.kept.push(variable.as_detached_tensor().zeros_like()?); // planted: moment
            }
        }
        for gradient in &self.gradients {
            if self.has("clipping") {
                self.kept.push(gradient.detach().sqr()?); // planted: clipping
            }
        }
        Ok(())
    }
}

/// The variables by name: the order of a `VarMap` differs between runs.
fn sorted(varmap: &VarMap) -> Vec<Var> {
    let named = varmap.data().lock().expect("no thread panicked");
    let mut names: Vec<&String> = named.keys().collect();
    names.sort();
    names.into_iter().filter_map(|name| named.get(name).cloned()).collect()
}

/// A thread that loads images ahead of the training.
fn loader(image: usize, ahead: usize) -> std::sync::mpsc::Receiver<Tensor> {
    let (sender, receiver) = sync_channel(ahead);
    std::thread::spawn(move || {
        loop {
            let values = vec![0.5_f32; BATCH * 3 * image * image]; // planted: queue
            let Ok(images) = Tensor::from_vec(values, (BATCH, 3, image, image), &Device::Cpu) else { return };
            if sender.send(images).is_err() {
                return;
            }
        }
    });
    receiver
}
