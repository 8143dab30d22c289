//! Prefill and decode steps, with the live bytes after each token.

use std::time::{Duration, Instant};

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama};
use memtrace::candle::named;
use memtrace::scope;

/// A model with its KV cache, and the history of live bytes.
pub(crate) struct Generation {
    model: Llama,
    cache: Cache,
    device: Device,
    /// Bytes added by loading the weights.
    pub(crate) parameters: u64,
    /// Bytes added by the tables of the cache.
    pub(crate) rope_tables: u64,
    /// Live bytes after each decoded token.
    pub(crate) live: Vec<u64>,
}

/// Live bytes on a device, including blocks below the threshold.
fn live_on(device: &Device) -> u64 {
    memtrace::stats(device).live()
}

impl Generation {
    /// Creates a model with an empty cache; `weights` runs inside, so that its bytes count.
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

    /// Processes the prompt; returns the next token and the time.
    pub(crate) fn prefill(&mut self, prompt: &[u32]) -> Result<(u32, Duration)> {
        let began = Instant::now();
        let next = scope("prefill", || self.next(prompt, 0))?;
        Ok((next, began.elapsed()))
    }

    /// Decodes `tokens` more tokens after `first`, which is at `position`; returns the time.
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

    /// Bytes that each token added, sorted. The first token is left out, because it also allocates buffers that all
    /// tokens share.
    pub(crate) fn growth(&self) -> Vec<i64> {
        let mut growth: Vec<i64> = self.live.windows(2).map(|pair| pair[1] as i64 - pair[0] as i64).collect();
        growth.sort_unstable();
        growth
    }

    /// The most probable token after `tokens`, the first of which is at `position`.
    fn next(&mut self, tokens: &[u32], position: usize) -> Result<u32> {
        let input = Tensor::new(tokens, &self.device)?.unsqueeze(0)?;
        let logits = self.model.forward(&input, position, &mut self.cache)?;
        logits.argmax(D::Minus1)?.squeeze(0)?.to_scalar()
    }
}
