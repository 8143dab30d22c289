//! A recurrent network over chunks of a text: the state goes from one chunk to the next without its graph. Between epochs it writes, and
//! keeps what it wrote until the next one.

use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, loss, ops};

use crate::truth::Truth;

const BATCH: usize = 16;
const WIDTH: usize = 64;
const WORDS: usize = 120;

struct Network {
    words: Tensor,
    carry: Tensor,
    out: Tensor,
}

impl Network {
    fn advance(&self, words: &Tensor, state: &Tensor) -> Result<Tensor> {
        (self.words.index_select(words, 0)? + state.matmul(&self.carry)?)?.tanh()
    }

    fn guess(&self, state: &Tensor) -> Result<Tensor> {
        ops::log_softmax(&state.matmul(&self.out)?, D::Minus1)
    }
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let new = |shape: (usize, usize)| Var::randn(0f32, 0.1, shape, device);
    let vars = truth.while_loading(|| {
        Ok::<_, candle_core::Error>([new((WORDS, WIDTH))?, new((WIDTH, WIDTH))?, new((WIDTH, WORDS))?])
    })?;
    let [words, carry, out] = vars.clone().map(Var::into_inner);
    let network = Network { words, carry, out };
    truth.are_parameters(vars.iter().map(|var| var.as_tensor()));
    let mut optimizer = truth.while_updating(|| AdamW::new_lr(vars.to_vec(), 1e-3))?;
    for epoch in 0..3u32 {
        let mut state = truth.while_reading(|| Tensor::zeros((BATCH, WIDTH), DType::F32, device))?;
        truth.is_none_of_them(&state);
        for chunk in 0..3u32 {
            let read = |at: u32| Tensor::from_vec(vec![(epoch + chunk + at) % WORDS as u32; BATCH], BATCH, device);
            let text = truth.while_reading(|| (0..5).map(read).collect::<Result<Vec<_>>>())?;
            let loss = truth.on_the_way_there(|| {
                let mut sum: Option<Tensor> = None;
                for pair in text.windows(2) {
                    state = network.advance(&pair[0], &state)?;
                    let loss = loss::nll(&network.guess(&state)?, &pair[1])?;
                    sum = Some(match sum {
                        Some(sum) => (sum + loss)?,
                        None => loss,
                    });
                }
                Ok::<_, candle_core::Error>(sum.expect("a chunk has words"))
            })?;
            let gradients = truth.on_the_way_back(|| loss.backward())?;
            truth.are_gradients(&gradients, &vars);
            truth.while_updating(|| optimizer.step(&gradients))?;
            state = state.detach();
        }
        let mut next = truth.while_reading(|| Tensor::from_vec(vec![1u32; BATCH], BATCH, device))?;
        truth.on_the_way_there(|| {
            let mut written = Vec::new();
            for _ in 0..12 {
                state = network.advance(&next, &state)?.detach();
                let guess = network.guess(&state)?.detach();
                next = guess.argmax(D::Minus1)?;
                written.push(guess);
            }
            Tensor::stack(&written, 0)?.sum_all()?.to_scalar::<f32>()
        })?;
    }
    Ok(())
}
