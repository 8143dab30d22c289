//! Prefill and decode, with a look at what is live after each token.

use std::time::{Duration, Instant};

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama};
use memtrace::candle::named;
use memtrace::scope;

/// A model with its KV cache, and what was live when.
pub(crate) struct Generation {
    model: Llama,
    cache: Cache,
    device: Device,
    /// Bytes that loading the weights added.
    pub(crate) parameters: u64,
    /// Bytes that the tables of the cache added.
    pub(crate) rope_tables: u64,
    /// Bytes live after each decoded token.
    pub(crate) live: Vec<u64>,
}

/// Bytes live on a device in blocks of every size.
fn live_on(device: &Device) -> u64 {
    memtrace::stats(device).live()
}

impl Generation {
    /// A model with an empty cache; `weights` are read within, to count with what they take.
    pub(crate) fn load<'a>(
        weights: impl FnOnce() -> Result<VarBuilder<'a>>,
        config: &Config,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let start = live_on(device);
        let model = scope("load", || Llama::load(named(weights()?), config))?;
        let loaded = live_on(device);
        let cache = scope("rope tables", || Cache::new(true, dtype, config, device))?;
        Ok(Self {
            model,
            cache,
            device: device.clone(),
            parameters: loaded.saturating_sub(start),
            rope_tables: live_on(device).saturating_sub(loaded),
            live: Vec::new(),
        })
    }

    /// Reads the prompt; gives the token that follows and the time.
    pub(crate) fn prefill(&mut self, prompt: &[u32]) -> Result<(u32, Duration)> {
        let began = Instant::now();
        let next = scope("prefill", || self.next(prompt, 0))?;
        Ok((next, began.elapsed()))
    }

    /// Makes `tokens` more after `first`, which stands at `position`; gives the time.
    pub(crate) fn decode(&mut self, first: u32, position: usize, tokens: usize) -> Result<Duration> {
        self.live = Vec::with_capacity(tokens);
        let began = Instant::now();
        let mut next = first;
        for number in 0..tokens {
            next = scope("decode", || self.next(&[next], position + number))?;
            self.live.push(live_on(&self.device));
        }
        Ok(began.elapsed())
    }

    /// How much each token added to what was live, smallest first. Not the first token: it also makes buffers
    /// that all share.
    pub(crate) fn growth(&self) -> Vec<i64> {
        let mut growth: Vec<i64> = self.live.windows(2).map(|pair| pair[1] as i64 - pair[0] as i64).collect();
        growth.sort_unstable();
        growth
    }

    /// The likeliest token after `tokens`, the first of which stands at `position`.
    fn next(&mut self, tokens: &[u32], position: usize) -> Result<u32> {
        let input = Tensor::new(tokens, &self.device)?.unsqueeze(0)?;
        let logits = self.model.forward(&input, position, &mut self.cache)?;
        logits.argmax(D::Minus1)?.squeeze(0)?.to_scalar()
    }
}
