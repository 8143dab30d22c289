//! Distillation: a small network learns from a large frozen one, with three losses and two batches per step. An average
//! of the small one is kept and evaluated.

use candle_core::backprop::GradStore;
use candle_core::{D, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, loss, ops};
use memtrace::Category::Parameter;

use crate::truth::Truth;

const FEATURES: usize = 512;
const CLASSES: usize = 100;
const BATCH: usize = 96;
const HEAT: f64 = 3.;

/// Weights and biases, from the first layer to the last.
struct Net(Vec<(Tensor, Tensor)>);

impl Net {
    /// The last hidden layer, and the logits.
    fn forward(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let ((weight, bias), inner) = self.0.split_last().expect("a network has layers");
        let mut hidden = x.clone();
        for (weight, bias) in inner {
            hidden = hidden.matmul(weight)?.broadcast_add(bias)?.gelu()?;
        }
        let logits = hidden.matmul(weight)?.broadcast_add(bias)?;
        Ok((hidden, logits))
    }
}

/// The teacher's weights were trained elsewhere.
fn teacher(device: &Device) -> Result<Net> {
    let mut layers = Vec::new();
    for (inputs, outputs) in [(FEATURES, 1024), (1024, 1024), (1024, CLASSES)] {
        let weight = Tensor::from_vec(vec![0.01f32; inputs * outputs], (inputs, outputs), device)?;
        layers.push((weight, Tensor::from_vec(vec![0f32; outputs], outputs, device)?));
    }
    Ok(Net(layers))
}

struct Student {
    net: Net,
    /// Maps the student's hidden layer to the teacher's.
    bridge: Var,
    vars: Vec<Var>,
}

impl Student {
    fn new(device: &Device) -> Result<Self> {
        let (mut vars, mut layers) = (Vec::new(), Vec::new());
        for (inputs, outputs) in [(FEATURES, 384), (384, 384), (384, CLASSES)] {
            let weight = Var::from_vec(vec![0.02f32; inputs * outputs], (inputs, outputs), device)?;
            let bias = Var::from_tensor(&Tensor::zeros(outputs, weight.dtype(), device)?)?;
            layers.push((weight.as_tensor().clone(), bias.as_tensor().clone()));
            vars.extend([weight, bias]);
        }
        let bridge = Var::from_slice(&vec![0.02f32; 384 * 1024], (384, 1024), device)?;
        vars.push(bridge.clone());
        Ok(Self { net: Net(layers), bridge, vars })
    }

    fn loss(&self, teacher: &Net, x: &Tensor, labels: &Tensor) -> Result<Tensor> {
        let (known, wanted) = memtrace::scope("teacher", || {
            let (hidden, logits) = teacher.forward(x)?;
            Ok::<_, candle_core::Error>((hidden, ops::softmax(&(logits / HEAT)?, D::Minus1)?))
        })?;
        let (hidden, logits) = self.net.forward(x)?;
        let soft = (ops::log_softmax(&(&logits / HEAT)?, D::Minus1)? * wanted)?.sum(D::Minus1)?.mean_all()?;
        let hint = loss::mse(&hidden.matmul(&self.bridge)?, &known)?;
        let hard = loss::cross_entropy(&logits, labels)?;
        (((soft * (-HEAT * HEAT))? + (hint * 0.1)?)? + hard)?.affine(0.5, 0.)
    }
}

/// A moving average of the student's weights.
struct Average(Net);

impl Average {
    fn of(student: &Net) -> Result<Self> {
        let copy = |tensor: &Tensor| Ok::<_, candle_core::Error>(tensor.copy()?.detach());
        let layers = student.0.iter().map(|(weight, bias)| Ok((copy(weight)?, copy(bias)?)));
        Ok(Self(Net(layers.collect::<Result<_>>()?)))
    }

    fn update(&mut self, truth: &Truth, student: &Net) -> Result<()> {
        let mix = |old: &Tensor, new: &Tensor| (old * 0.99)? + (new.detach() * 0.01)?;
        for (old, new) in self.0.0.iter_mut().zip(&student.0) {
            *old = (mix(&old.0, &new.0)?, mix(&old.1, &new.1)?);
            truth.is(&old.0, Parameter);
            truth.is(&old.1, Parameter);
        }
        Ok(())
    }
}

fn batch(number: usize, device: &Device) -> Result<(Tensor, Tensor)> {
    let x = Tensor::from_vec(vec![number as f32; BATCH * FEATURES], (BATCH, FEATURES), device)?;
    let labels: Vec<u32> = (0..BATCH).map(|n| ((n + number) % CLASSES) as u32).collect();
    Ok((x, Tensor::from_vec(labels, BATCH, device)?))
}

/// The sum of the gradients of two batches.
fn gradients(truth: &Truth, student: &Student, teacher: &Net, step: usize, device: &Device) -> Result<GradStore> {
    let mut sum: Option<GradStore> = None;
    for half in 0..2 {
        let (x, labels) = truth.while_reading(|| batch(2 * step + half, device))?;
        let loss = truth.on_the_way_there(|| student.loss(teacher, &x, &labels))?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &student.vars);
        if let Some(sum) = &mut sum {
            truth.on_the_way_back(|| sum.extend(gradients))?;
            truth.are_gradients(sum, &student.vars);
        } else {
            sum = Some(gradients);
        }
    }
    Ok(sum.expect("there were batches"))
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let teacher = truth.while_loading(|| teacher(device))?;
    let student = truth.while_loading(|| Student::new(device))?;
    let mut average = truth.while_loading(|| Average::of(&student.net))?;
    let mut optimizer = truth.while_updating(|| AdamW::new(student.vars.clone(), ParamsAdamW::default()))?;
    let held_out = truth.while_reading(|| Tensor::ones((256, FEATURES), candle_core::DType::F32, device))?;
    let mut predictions = Vec::new();
    for step in 0..8 {
        let gradients = gradients(truth, &student, &teacher, step, device)?;
        optimizer.set_learning_rate(1e-3 / (step + 1) as f64);
        truth.while_updating(|| optimizer.step(&gradients))?;
        truth.while_updating(|| average.update(truth, &student.net))?;
        drop(gradients);
        if step % 4 == 3 {
            let predicted = truth.on_the_way_there(|| ops::softmax(&average.0.forward(&held_out)?.1, D::Minus1))?;
            truth.is_none_of_them(&predicted);
            predictions.push(predicted);
        }
    }
    assert_eq!(predictions.len(), 2);
    Ok(())
}
