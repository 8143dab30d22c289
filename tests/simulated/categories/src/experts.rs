//! A mixture of experts: each token goes to one of them, in buffers of a fixed capacity. The empty buffers are made once.

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{AdamW, Linear, Optimizer, VarBuilder, VarMap, linear, loss, ops};

use crate::truth::Truth;

const WIDTH: usize = 48;
const EXPERTS: usize = 16;
const TOKENS: usize = 64;
const CAPACITY: usize = 16;

struct Layer {
    gate: Linear,
    experts: Vec<(Linear, Linear)>,
    /// Empty buffers.
    empty: Tensor,
}

impl Layer {
    fn new(truth: &Truth, build: &VarBuilder<'_>) -> Result<Self> {
        let expert = |n: usize| {
            let build = build.pp(n);
            Ok((linear(WIDTH, 2 * WIDTH, build.pp("up"))?, linear(2 * WIDTH, WIDTH, build.pp("down"))?))
        };
        let empty = Tensor::zeros((EXPERTS * CAPACITY, WIDTH), DType::F32, build.device())?;
        truth.is_none_of_them(&empty);
        Ok(Self {
            gate: linear(WIDTH, EXPERTS, build.pp("gate"))?,
            experts: (0..EXPERTS).map(expert).collect::<Result<_>>()?,
            empty,
        })
    }

    /// `places`: where each token goes in the buffers.
    fn mix(&self, tokens: &Tensor, places: &Tensor) -> Result<Tensor> {
        let chances = ops::softmax(&self.gate.forward(tokens)?, D::Minus1)?;
        let given = self.empty.index_add(places, tokens, 0)?;
        let mut taken = Vec::new();
        for (n, (up, down)) in self.experts.iter().enumerate() {
            let part = given.narrow(0, n * CAPACITY, CAPACITY)?;
            taken.push(down.forward(&up.forward(&part)?.relu()?)?);
        }
        let mixed = Tensor::cat(&taken, 0)?.index_select(places, 0)?;
        tokens + mixed.broadcast_mul(&chances.max_keepdim(D::Minus1)?)?
    }
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let map = VarMap::new();
    let layers = truth.while_loading(|| {
        let build = VarBuilder::from_varmap(&map, DType::F32, device);
        (0..2).map(|n| Layer::new(truth, &build.pp(n))).collect::<Result<Vec<_>>>()
    })?;
    let vars = crate::variables(&map);
    truth.are_parameters(vars.iter().map(|var| var.as_tensor()));
    let mut optimizer = truth.while_updating(|| AdamW::new_lr(vars.clone(), 1e-3))?;
    for step in 0..4usize {
        let tokens = truth.while_reading(|| Tensor::randn(0f32, 1., (TOKENS, WIDTH), device))?;
        let wanted = truth.while_reading(|| Tensor::randn(0f32, 1., (TOKENS, WIDTH), device))?;
        let places: Vec<u32> = (0..TOKENS).map(|n| ((n * 4 + step) % (EXPERTS * CAPACITY)) as u32).collect();
        let places = truth.while_reading(|| Tensor::from_vec(places, TOKENS, device))?;
        let loss = truth.on_the_way_there(|| {
            let mut mixed = tokens.clone();
            for layer in &layers {
                mixed = layer.mix(&mixed, &places)?;
            }
            loss::mse(&mixed, &wanted)
        })?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &vars);
        truth.while_updating(|| optimizer.step(&gradients))?;
    }
    Ok(())
}
