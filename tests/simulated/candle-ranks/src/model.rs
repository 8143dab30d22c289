//! A Llama of which each rank has a part of every layer: columns of the first matrices, rows of the last, whose results NCCL adds up.

use std::sync::Arc;

use candle_core::backend::BackendStorage;
use candle_core::cuda_backend::CudaStorage;
use candle_core::cuda_backend::cudarc::nccl::{Comm, ReduceOp};
use candle_core::{CpuStorage, CustomOp1, Device, Layout, Module, Result, Shape, Tensor, bail};
use candle_nn::{Embedding, RmsNorm, VarBuilder, embedding, rms_norm};
use memtrace::{module, scope};

const HIDDEN: usize = 256;
const HEADS: usize = 4;
const INNER: usize = 512;
const LAYERS: usize = 2;
const WORDS: usize = 1000;

struct AllReduce(Arc<Comm>);

// SAFETY: each process uses its communicator on one thread.
unsafe impl Send for AllReduce {}
// SAFETY: as above.
unsafe impl Sync for AllReduce {}

impl CustomOp1 for AllReduce {
    fn name(&self) -> &'static str {
        "all-reduce"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        bail!("there is no NCCL on the CPU")
    }

    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let device = storage.device().clone();
        let part = storage.as_cuda_slice::<f32>()?.slice(layout.start_offset()..);
        // SAFETY: NCCL writes all of it.
        let mut sum = unsafe { device.alloc::<f32>(layout.shape().elem_count()) }?;
        match self.0.all_reduce(&part, &mut sum, &ReduceOp::Sum) {
            Ok(_) => Ok((CudaStorage::wrap_cuda_slice(sum, device), layout.shape().clone())),
            Err(error) => bail!("NCCL: {:?}", error.0),
        }
    }
}

/// Rows of a matrix; the sum over the ranks is the product with all of it.
struct Rows {
    weight: Tensor,
    comm: Arc<Comm>,
}

impl Rows {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let part = x.matmul(&self.weight)?;
        scope("all-reduce", || part.apply_op1_no_bwd(&AllReduce(self.comm.clone())))
    }
}

struct Block {
    norms: [RmsNorm; 2],
    qkv: Tensor,
    out: Rows,
    up: Tensor,
    down: Rows,
    heads: usize,
}

impl Block {
    fn load(vb: &VarBuilder<'_>, comm: &Arc<Comm>) -> Result<Self> {
        let ranks = comm.world_size();
        let rows = |count, name| {
            Ok::<_, candle_core::Error>(Rows { weight: vb.get((count / ranks, HIDDEN), name)?, comm: Arc::clone(comm) })
        };
        Ok(Self {
            norms: [rms_norm(HIDDEN, 1e-5, vb.pp("attn_norm"))?, rms_norm(HIDDEN, 1e-5, vb.pp("mlp_norm"))?],
            qkv: vb.get((HIDDEN, 3 * HIDDEN / ranks), "qkv")?,
            out: rows(HIDDEN, "out")?,
            up: vb.get((HIDDEN, INNER / ranks), "up")?,
            down: rows(INNER, "down")?,
            heads: HEADS / ranks,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [attn_norm, mlp_norm] = &self.norms;
        let x = (x + module("attention", || self.attention(&attn_norm.forward(x)?))?)?;
        let mlp = || self.down.forward(&mlp_norm.forward(&x)?.matmul(&self.up)?.silu()?);
        &x + module("mlp", mlp)?
    }

    fn attention(&self, x: &Tensor) -> Result<Tensor> {
        let (tokens, head) = (x.dim(0)?, HIDDEN / HEADS);
        let qkv = x.matmul(&self.qkv)?.reshape((tokens, 3, self.heads, head))?.permute((1, 2, 0, 3))?.contiguous()?;
        let (q, k, v) = (qkv.get(0)?, qkv.get(1)?, qkv.get(2)?);
        let scores = candle_nn::ops::softmax_last_dim(&(q.matmul(&k.t()?)? * (head as f64).powf(-0.5))?)?;
        let mixed = scores.matmul(&v)?.transpose(0, 1)?.reshape((tokens, self.heads * head))?;
        self.out.forward(&mixed)
    }
}

pub(crate) struct Llama {
    words: Embedding,
    blocks: Vec<Block>,
    head: Tensor,
}

impl Llama {
    pub(crate) fn load(device: &Device, comm: Comm) -> Result<Self> {
        let vb = VarBuilder::zeros(candle_core::DType::F32, device);
        let comm = Arc::new(comm);
        let blocks = (0..LAYERS).map(|layer| Block::load(&vb.pp(layer), &comm)).collect::<Result<_>>()?;
        Ok(Self { words: embedding(WORDS, HIDDEN, vb.pp("words"))?, blocks, head: vb.get((HIDDEN, WORDS), "head")? })
    }

    pub(crate) fn forward(&self, words: &Tensor) -> Result<Tensor> {
        let mut x = self.words.forward(words)?;
        for (layer, block) in self.blocks.iter().enumerate() {
            x = module(format!("block {layer}"), || block.forward(&x))?;
        }
        x.matmul(&self.head)
    }
}
