//! Networks written from the definition alone, before the analysis by uses ran on them.

use std::cell::RefCell;

use candle_core::{D, Result, Tensor, Var};
use candle_nn::loss::mse;
use candle_nn::ops::softmax;

use crate::models::{Variables, data, linear};
use crate::{Backward, device};

/// Two critics of equal shapes, which learn from the smaller result of their slow copies. States, weights, layers and results all
/// have one size. A first pass with the same weights and states stays alive through the step, two parts of the batch add to one
/// momentum, which is kept over, and the losses use what was taken three times, the square of one tensor as its product with
/// itself, and both the larger and the smaller of the two results, whose difference is divided by a computed size.
pub(crate) fn q_learning(backward: Backward<'_>) -> Result<()> {
    fn critic(weights: &[Tensor], x: &Tensor) -> Result<Tensor> {
        let inner = x.matmul(&weights[0])?.relu()?;
        let inner = (inner.matmul(&weights[1])?.tanh()? + &inner)?;
        let value = inner.matmul(&weights[3])?;
        let advantage = inner.matmul(&weights[2])?;
        let below = advantage.broadcast_sub(&advantage.max_keepdim(1)?)?;
        value.broadcast_add(&below)
    }
    let vars = (0..8)
        .map(|at| Var::randn(0f32, 0.1, (64, if at % 4 == 3 { 1 } else { 64 }), &device()))
        .collect::<Result<Vec<_>>>()?;
    let online = vars.iter().map(|var| var.as_tensor().clone()).collect::<Vec<_>>();
    let mut slow = vars.iter().map(|var| Ok(var.copy()?.detach())).collect::<Result<Vec<Tensor>>>()?;
    let mut momenta = vars.iter().map(|var| var.zeros_like()).collect::<Result<Vec<Tensor>>>()?;
    let (states, rewards) = (data(&[192, 64])?, data(&[128, 1])?);
    let actions = (0..128u32).map(|at| at * 7 % 64).collect::<Vec<_>>();
    let actions = Tensor::from_vec(actions, (128, 1), &device())?;
    for _ in 0..2 {
        let shown = critic(&online[..4], &states.narrow(0, 0, 64)?)?;
        for part in 0..2 {
            let rows = |of: &Tensor, skipped: usize| of.narrow(0, (part + skipped) * 64, 64);
            let (state, next, action) = (rows(&states, 0)?, rows(&states, 1)?, rows(&actions, 0)?);
            let best = critic(&slow[..4], &next)?.minimum(&critic(&slow[4..], &next)?)?.max_keepdim(1)?;
            let goal = ((best * 0.9)? + rows(&rewards, 0)?)?;
            let (second, first) = (critic(&online[4..], &state)?, critic(&online[..4], &state)?);
            let loss_of = |told: &Tensor| -> Result<Tensor> {
                let taken = told.gather(&action, 1)?;
                let off = (&taken - &goal)?;
                let size = off.abs()?;
                let square = ((&off * &off)? * 0.5)?;
                let error = size.le(1f32)?.where_cond(&square, &(&size - 0.5)?)?;
                let others = (told.log_sum_exp(1)?.unsqueeze(1)? - &taken)?;
                error.mean_all()? + (others.mean_all()? * 0.1)?
            };
            let (of_first, of_second) = (loss_of(&first)?, loss_of(&second)?);
            let gap = (first.maximum(&second)? - first.minimum(&second)?)?;
            let gap = (&gap / ((first.abs()? + second.abs()?)? + 1.)?)?;
            let loss = ((of_second + of_first)? + gap.powf(1.5)?.mean_all()?)?;
            let gradients = backward(&(loss * 0.5)?)?;
            for (var, momentum) in vars.iter().zip(&mut momenta) {
                if let Some(gradient) = gradients.get(var) {
                    *momentum = ((&*momentum * 0.9)? + gradient.detach())?;
                }
            }
        }
        for ((var, momentum), slow) in vars.iter().zip(&momenta).zip(&mut slow) {
            var.set(&(var.as_tensor() - (momentum * 0.01)?)?)?;
            *slow = ((&*slow * 0.95)? + (var.as_tensor().detach() * 0.05)?)?;
        }
        drop(shown);
    }
    Ok(())
}

/// An encoder in two branches with the same weights, the second branch computed first; rows are told from each other and from the
/// rows of the step before. The heads are queries, keys and values at once, one weight is in two of three residual layers, and
/// the layer before is added twice. One transposed weight is used by two calls, others by one. The products of all rows are joined
/// with a transposed one, which makes the joined tensor a view. The second loss reads a view of a view of a sum with itself.
pub(crate) fn contrast(backward: Backward<'_>) -> Result<()> {
    const HEADS: usize = 4;
    let mut vars = Variables::default();
    let (wide, bias) = (vars.add(&[64, 64])?, vars.add(&[64])?);
    let mixers = (0..3).map(|_| vars.add(&[64, 64])).collect::<Result<Vec<_>>>()?;
    let batch = data(&[64, 64])?;
    let turned = Tensor::from_vec((0..64u32).rev().collect::<Vec<_>>(), 64, &device())?;
    let pairs = Tensor::from_vec((0..64u32).map(|at| at / 2 * 2).collect::<Vec<_>>(), 64, &device())?;
    let own = (0..64 * 64u32).map(|at| u8::from(at % 65 == 0)).collect::<Vec<_>>();
    let own = Tensor::from_vec(own, (64, 64), &device())?;
    let bank = RefCell::new(data(&[64, 64])?);
    vars.train(backward, || {
        let encode = |x: &Tensor| -> Result<Tensor> {
            let inner = linear(x, &wide, &bias)?.gelu()?;
            let heads = inner.reshape((64, HEADS, 64 / HEADS))?.transpose(0, 1)?.contiguous()?;
            let scores = (heads.matmul(&heads.t()?)? * 0.25)?;
            let mixed = softmax(&scores, D::Minus1)?.matmul(&heads)?;
            let mixed = mixed.transpose(0, 1)?.reshape((64, 64))?;
            let mut x = ((&inner + mixed)? + &inner)?;
            for at in [1, 0, 1] {
                x = (x.matmul(&mixers[at])?.silu()? + &x)?;
            }
            let size = ((&x * &x)?.sum_keepdim(1)? + 1e-3)?.powf(0.5)?;
            x.broadcast_div(&size)
        };
        let right = encode(&(batch.index_select(&turned, 0)? * 2.)?)?;
        let left = encode(&batch)?;
        let before = bank.replace(right.detach());
        let near = (&right * &left)?.sum_keepdim(1)?;
        let like = left.matmul(&right.t()?)?;
        let others = own.where_cond(&like.zeros_like()?, &like)?;
        let among = left.matmul(&left.t()?)?;
        let far = Tensor::cat(&[&others, &among.t()?, &left.matmul(&before.t()?)?], 1)?;
        let hardest = far.max_keepdim(1)?;
        let least = like.min_keepdim(0)?.t()?;
        let margin = (((hardest - &near)? + 0.2)?.maximum(0f32)? - (least * 0.1)?)?;
        let back = mixers[2].t()?;
        let restored = (right.matmul(&back)? + left.index_select(&pairs, 0)?)?;
        let restored = (left.matmul(&back)? + (&restored + &restored)?)?;
        let told = (&restored + &restored)?.narrow(1, 16, 48)?.narrow(1, 0, 32)?;
        mse(&told, &batch.narrow(1, 16, 32)?)? + (margin.mean_all()? + (&near * &near)?.mean_all()?)?
    })
}
