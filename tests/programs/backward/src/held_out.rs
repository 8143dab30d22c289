//! Networks written from the definition alone, before the analysis ran on them.

use candle_core::{D, DType, IndexOp, Result, Tensor};
use candle_nn::loss::{cross_entropy, mse};
use candle_nn::ops::{sigmoid, softmax};

use crate::models::{Variables, data, linear};
use crate::{Backward, device};

/// A U-Net of two levels with equal channels. One level shrinks by a pooling and the other by a stride; one grows by copies of
/// its pixels and the other by a transposed convolution. The bottom is copied up twice, also to full size, and each level that
/// a join needs later is first used by the level below. The classes of the pixels are told from a permuted view.
pub(crate) fn u_net(backward: Backward<'_>) -> Result<()> {
    let mut vars = Variables::default();
    let kernels = [3, 8, 8, 8, 8, 8, 16, 8, 24, 8]
        .into_iter()
        .map(|channels| vars.add(&[8, channels, 3, 3]))
        .collect::<Result<Vec<_>>>()?;
    let biases = (0..kernels.len()).map(|_| vars.add(&[1, 8, 1, 1])).collect::<Result<Vec<_>>>()?;
    let (grow, head) = (vars.add(&[8, 8, 2, 2])?, vars.add(&[3, 8, 1, 1])?);
    let images = data(&[2, 3, 16, 16])?;
    let classes = Tensor::from_vec((0..512u32).map(|at| at % 3).collect::<Vec<_>>(), 512, &device())?;
    vars.train(backward, || {
        let conv = |x: &Tensor, at: usize, stride: usize| -> Result<Tensor> {
            x.conv2d(&kernels[at], 1, stride, 1, 1)?.broadcast_add(&biases[at])?.relu()
        };
        let twice = |x: &Tensor, at: usize| -> Result<Tensor> { conv(&conv(x, at, 1)?, at + 1, 1) };
        let high = twice(&images, 0)?;
        let low = twice(&high.max_pool2d(2)?, 2)?;
        let bottom = conv(&conv(&low, 4, 2)?, 5, 1)?;
        let whole = bottom.upsample_nearest2d(16, 16)?;
        let joined = Tensor::cat(&[&bottom.upsample_nearest2d(8, 8)?, &low], 1)?;
        let grown = twice(&joined, 6)?.conv_transpose2d(&grow, 0, 0, 2, 1)?;
        let joined = Tensor::cat(&[&high, &grown, &whole], 1)?;
        let logits = twice(&joined, 8)?.conv2d(&head, 0, 1, 1, 1)?;
        cross_entropy(&logits.permute((0, 2, 3, 1))?.reshape((512, 3))?, &classes)
    })
}

/// Two layers of three experts, which share the weights of the experts but not the gate. Each expert takes the half of the
/// rows that its gate prefers, so that a row has none to three experts and all experts compute equal sizes. The results are
/// joined in the opposite order, and the rows are as large as a weight.
pub(crate) fn experts(backward: Backward<'_>) -> Result<()> {
    let mut vars = Variables::default();
    let gates = (0..2).map(|_| vars.add(&[64, 3])).collect::<Result<Vec<_>>>()?;
    let experts = (0..3)
        .map(|_| Ok([vars.add(&[64, 64])?, vars.add(&[64])?, vars.add(&[64, 64])?, vars.add(&[64])?]))
        .collect::<Result<Vec<[Tensor; 4]>>>()?;
    let (input, target) = (data(&[64, 64])?, data(&[64, 64])?);
    vars.train(backward, || {
        let mut x = input.clone();
        for gate in &gates {
            let shares = softmax(&x.matmul(gate)?, D::Minus1)?;
            let preferred = shares.detach().t()?.contiguous()?.arg_sort_last_dim(false)?;
            let mut parts = Vec::new();
            for (at, [up, bias_up, down, bias_down]) in experts.iter().enumerate() {
                let rows = preferred.i((at, ..32))?;
                let inner = linear(&x.index_select(&rows, 0)?, up, bias_up)?.silu()?;
                let share = shares.index_select(&rows, 0)?.narrow(1, at, 1)?;
                let part = linear(&inner, down, bias_down)?.broadcast_mul(&share)?;
                parts.push((rows, part));
            }
            let mut joined = x.zeros_like()?;
            for (rows, part) in parts.iter().rev() {
                joined = joined.index_add(rows, part, 0)?;
            }
            x = (x + joined)?;
        }
        mse(&x, &target)
    })
}

/// A cell like a GRU over five words, with normalized gates that are views of views of one product, and a normalized result
/// for each word. The state is cut off after the second word. A second loss, which is added, tells each result from the one
/// before; what it should tell are the results themselves, detached, which share the memory but not the gradients.
pub(crate) fn recurrent(backward: Backward<'_>) -> Result<()> {
    const WORDS: usize = 5;
    let mut vars = Variables::default();
    let product = vars.add(&[96, 256])?;
    let of_gates = (vars.add(&[256])?, vars.add(&[256])?);
    let of_state = (vars.add(&[64])?, vars.add(&[64])?);
    let (head, bias) = (vars.add(&[32, 64])?, vars.add(&[32])?);
    let (ahead, bias_ahead) = (vars.add(&[64, 64])?, vars.add(&[64])?);
    let (input, target) = (data(&[WORDS, 16, 32])?, data(&[16, WORDS, 32])?);
    vars.train(backward, || {
        let normal = |x: &Tensor, (gain, shift): &(Tensor, Tensor)| -> Result<Tensor> {
            let x = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
            let deviation = (x.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
            x.broadcast_div(&deviation)?.broadcast_mul(gain)?.broadcast_add(shift)
        };
        let mut state = Tensor::zeros((16, 64), DType::F32, &device())?;
        let mut results = Vec::new();
        for at in 0..WORDS {
            let gates = Tensor::cat(&[&input.i(at)?, &state], 1)?.matmul(&product)?;
            let gates = normal(&gates, &of_gates)?;
            let fresh = gates.narrow(1, 128, 128)?.chunk(2, 1)?;
            let open = sigmoid(&gates.narrow(1, 0, 128)?)?.chunk(2, 1)?;
            let fresh = (&fresh[0] + (&open[0] * &fresh[1])?)?.tanh()?;
            state = (&state + (&open[1] * (fresh - &state)?)?)?;
            results.push(normal(&state, &of_state)?);
            if at == 1 {
                state = state.detach();
            }
        }
        let results = Tensor::stack(&results, 1)?;
        let told = linear(&results, &head, &bias)?;
        let before = results.narrow(1, 0, WORDS - 1)?.reshape((64, 64))?;
        let after = results.detach().narrow(1, 1, WORDS - 1)?.reshape((64, 64))?;
        let told_ahead = linear(&before, &ahead, &bias_ahead)?.tanh()?;
        mse(&told, &target)? + (mse(&told_ahead, &after)? * 0.5)?
    })
}
