//! ResNet-50 in train mode, with torchvision's layout and names: the stride is in the 3x3 convolution.
//!
//! Shapes are (batch, channels, height, width). Each tensor operation has its own source line, so that a profile by
//! line separates them. Architecture: arXiv 1512.03385, table 1.

use candle_core::{Result, Tensor};
use candle_nn::{BatchNorm, Conv2d, Conv2dConfig, Linear, Module, ModuleT, VarBuilder};
use candle_nn::{batch_norm, conv2d_no_bias, linear};

/// Bottleneck blocks in `layer1` to `layer4`.
const BLOCKS: [usize; 4] = [3, 4, 6, 3];

/// Channels after the stem. `layer1`'s blocks have this width; each later layer doubles it.
const STEM_CHANNELS: usize = 64;

/// Ratio of a block's output channels to its width.
const EXPANSION: usize = 4;

/// Classes of ImageNet.
const CLASSES: usize = 1000;

/// Added to the variance in batch norm.
const EPS: f64 = 1e-5;

/// ResNet-50: 25,557,032 trainable parameters and 53,120 running statistics.
pub(crate) struct ResNet50 {
    conv1: Conv2d,
    bn1: BatchNorm,
    blocks: Vec<Bottleneck>,
    fc: Linear,
}

impl ResNet50 {
    /// Takes the parameters from `vb`, which creates missing ones.
    pub(crate) fn new(vb: VarBuilder) -> Result<Self> {
        Ok(Self {
            conv1: conv(3, STEM_CHANNELS, 7, 2, vb.pp("conv1"))?,
            bn1: batch_norm(STEM_CHANNELS, EPS, vb.pp("bn1"))?,
            blocks: all_blocks(&vb)?,
            fc: linear(8 * STEM_CHANNELS * EXPANSION, CLASSES, vb.pp("fc"))?,
        })
    }

    /// Maps images (batch, 3, height, width) to logits (batch, 1000); updates the running statistics.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.conv1.forward(x)?;
        let x = self.bn1.forward_t(&x, true)?;
        let x = x.relu()?;
        let mut x = max_pool_3x3_s2(&x)?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        let x = x.mean((2, 3))?;
        self.fc.forward(&x)
    }
}

/// The blocks of `layer1` to `layer4`, in order.
fn all_blocks(vb: &VarBuilder) -> Result<Vec<Bottleneck>> {
    let mut blocks = Vec::new();
    let mut channels = STEM_CHANNELS;
    for (stage, count) in BLOCKS.into_iter().enumerate() {
        let width = STEM_CHANNELS << stage;
        for index in 0..count {
            let stride = if stage > 0 && index == 0 { 2 } else { 1 };
            let vb = vb.pp(format!("layer{}.{index}", stage + 1));
            blocks.push(Bottleneck::new(channels, width, stride, vb)?);
            channels = width * EXPANSION;
        }
    }
    Ok(blocks)
}

/// A 1x1, a 3x3 and a 1x1 convolution around a shortcut.
struct Bottleneck {
    conv1: Conv2d,
    bn1: BatchNorm,
    conv2: Conv2d,
    bn2: BatchNorm,
    conv3: Conv2d,
    bn3: BatchNorm,
    downsample: Option<Downsample>,
}

impl Bottleneck {
    /// A block from `channels` to `width * EXPANSION` channels.
    fn new(channels: usize, width: usize, stride: usize, vb: VarBuilder) -> Result<Self> {
        let out = width * EXPANSION;
        Ok(Self {
            conv1: conv(channels, width, 1, 1, vb.pp("conv1"))?,
            bn1: batch_norm(width, EPS, vb.pp("bn1"))?,
            conv2: conv(width, width, 3, stride, vb.pp("conv2"))?,
            bn2: batch_norm(width, EPS, vb.pp("bn2"))?,
            conv3: conv(width, out, 1, 1, vb.pp("conv3"))?,
            bn3: batch_norm(out, EPS, vb.pp("bn3"))?,
            downsample: Downsample::if_needed(channels, out, stride, vb.pp("downsample"))?,
        })
    }

    /// relu(convolutions(x) + shortcut(x)).
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.conv1.forward(x)?;
        let y = self.bn1.forward_t(&y, true)?;
        let y = y.relu()?;
        let y = self.conv2.forward(&y)?;
        let y = self.bn2.forward_t(&y, true)?;
        let y = y.relu()?;
        let y = self.conv3.forward(&y)?;
        let y = self.bn3.forward_t(&y, true)?;
        let downsample = self.downsample.as_ref();
        let shortcut = downsample.map(|d| d.forward(x)).transpose()?;
        let y = (y + shortcut.as_ref().unwrap_or(x))?;
        y.relu()
    }
}

/// The shortcut of a block whose output shape differs from its input's.
struct Downsample {
    conv: Conv2d,
    bn: BatchNorm,
}

impl Downsample {
    /// `None` if the block's input itself is the shortcut.
    fn if_needed(cin: usize, cout: usize, stride: usize, vb: VarBuilder) -> Result<Option<Self>> {
        if stride == 1 && cin == cout {
            return Ok(None);
        }
        Ok(Some(Self { conv: conv(cin, cout, 1, stride, vb.pp("0"))?, bn: batch_norm(cout, EPS, vb.pp("1"))? }))
    }

    /// Gives `x` the shape of the block's output.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.conv.forward(x)?;
        self.bn.forward_t(&y, true)
    }
}

/// A square convolution without bias, padded so that stride 1 keeps the size.
fn conv(cin: usize, cout: usize, kernel: usize, stride: usize, vb: VarBuilder) -> Result<Conv2d> {
    let config = Conv2dConfig { padding: kernel / 2, stride, ..Default::default() };
    conv2d_no_bias(cin, cout, kernel, config, vb)
}

/// 3x3 max pool with stride 2 and padding 1, built from differentiable operations: candle's `max_pool2d` has no
/// backward pass unless kernel == stride.
///
/// Pads with zeros instead of -inf. For values that are not negative, as after relu, this is the same.
pub(crate) fn max_pool_3x3_s2(x: &Tensor) -> Result<Tensor> {
    let rows = max_pool_along(x, 2)?;
    max_pool_along(&rows, 3)
}

/// Pools along one dimension: output i is the maximum of inputs 2i-1, 2i and 2i+1.
fn max_pool_along(x: &Tensor, dim: usize) -> Result<Tensor> {
    let size = x.dim(dim)?;
    let out = size.div_ceil(2);
    let padded = x.pad_with_zeros(dim, 1, 2 * out + 1 - size)?;
    let pairs = split_pairs(&padded, dim)?;
    let even = pairs.get_on_dim(dim + 1, 0)?;
    let left = even.narrow(dim, 0, out)?;
    let right = even.narrow(dim, 1, out)?;
    let middle = pairs.get_on_dim(dim + 1, 1)?.narrow(dim, 0, out)?;
    let max = left.maximum(&middle)?;
    max.maximum(&right)
}

/// A view with `dim`, of length 2n, split into two dimensions (n, 2).
fn split_pairs(x: &Tensor, dim: usize) -> Result<Tensor> {
    let mut shape = x.dims().to_vec();
    shape[dim] /= 2;
    shape.insert(dim + 1, 2);
    x.reshape(shape)
}
