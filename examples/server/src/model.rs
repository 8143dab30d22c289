//! A language model reduced to its memory: weights, and a cache that grows with each token.

use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError};

const LAYERS: usize = 8;
const WEIGHTS: usize = 1 << 18;
/// Numbers that a layer keeps for each token.
const WIDTH: usize = 1 << 10;

/// A tensor of `f32`.
enum Tensor {
    Cpu(Vec<f32>),
    Gpu(CudaSlice<f32>),
}

impl Tensor {
    fn zeros(stream: Option<&Arc<CudaStream>>, length: usize) -> Result<Self, DriverError> {
        Ok(match stream {
            Some(stream) => Self::Gpu(stream.alloc_zeros(length)?),
            None => Self::Cpu(vec![0.0; length]),
        })
    }

    fn bytes(&self) -> usize {
        4 * match self {
            Self::Cpu(numbers) => numbers.len(),
            Self::Gpu(numbers) => numbers.len(),
        }
    }
}

/// cudarc frees in the thread's current context. After an `.await` the thread may be another one, which has none.
impl Drop for Tensor {
    fn drop(&mut self) {
        if let Self::Gpu(numbers) = self {
            let _ = numbers.context().bind_to_thread();
        }
    }
}

pub(crate) struct Model {
    /// `None` on the CPU.
    stream: Option<Arc<CudaStream>>,
    weights: Vec<Tensor>,
}

impl Model {
    pub(crate) fn load(is_on_gpu: bool) -> Result<Self, DriverError> {
        let stream = is_on_gpu.then(|| CudaContext::new(0).map(|context| context.default_stream())).transpose()?;
        let weight = |_| Tensor::zeros(stream.as_ref(), WEIGHTS);
        let weights = memtrace::scope("load", || (0..LAYERS).map(weight).collect::<Result<_, _>>())?;
        Ok(Self { stream, weights })
    }

    /// Returns the bytes of the cache.
    pub(crate) async fn generate(&self, tokens: usize) -> Result<usize, DriverError> {
        let mut cache = Vec::new();
        for token in 1..=tokens {
            // As in candle, a longer cache is a new block.
            let longer = |_| Tensor::zeros(self.stream.as_ref(), token * WIDTH);
            cache = (0..self.weights.len()).map(longer).collect::<Result<_, _>>()?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(cache.iter().map(Tensor::bytes).sum())
    }
}
