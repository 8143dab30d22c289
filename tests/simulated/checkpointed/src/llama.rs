//! A small Llama with operators that candle can go back through: its own model uses fused ones, which have no backward pass.

use candle_core::{D, DType, Result, Tensor, Var};

use crate::device;
use crate::networks::{Network, Part, part};

const WIDTH: usize = 128;
const HEADS: usize = 4;
const HIDDEN: usize = 352;
const WORDS: usize = 512;
const LENGTH: usize = 64;
const BATCH: usize = 2;

/// Four layers of attention with rotary positions and a gated perceptron, on the next word.
pub(crate) fn llama() -> Result<Network> {
    let words: Vec<u32> = (0..=BATCH * LENGTH).map(|at| (at * 7919 % WORDS) as u32).collect();
    let (input, target) = (&words[..BATCH * LENGTH], &words[1..]);
    let mut parts = vec![part("embed_tokens", &[&[WORDS, WIDTH]], |vars, x| {
        vars[0].index_select(x, 0)?.reshape((BATCH, LENGTH, WIDTH))
    })?];
    let tables = Tables::new()?;
    for at in 0..4 {
        parts.push(layer(format!("layers.{at}"), &tables)?);
    }
    parts.push(part("lm_head", &[&[WIDTH], &[WIDTH, WORDS]], |vars, x| norm(x, &vars[0])?.broadcast_matmul(&vars[1]))?);
    Ok(Network { parts, input: Tensor::new(input, &device())?, target: Tensor::new(target, &device())? })
}

/// Cosines and sines of positions, and the mask of later words.
#[derive(Clone)]
struct Tables {
    cos: Tensor,
    sin: Tensor,
    mask: Tensor,
}

impl Tables {
    fn new() -> Result<Self> {
        let half = WIDTH / HEADS / 2;
        let angle = |place: usize, at: usize| place as f32 / 10_000f32.powf(at as f32 / half as f32);
        let angles: Vec<f32> =
            (0..LENGTH).flat_map(|place| (0..half).map(move |at| (place, at))).map(|(p, at)| angle(p, at)).collect();
        let angles = Tensor::from_vec(angles, (LENGTH, half), &device())?;
        let hidden = |at: usize| if at % LENGTH > at / LENGTH { f32::NEG_INFINITY } else { 0. };
        let mask: Vec<f32> = (0..LENGTH * LENGTH).map(hidden).collect();
        let mask = Tensor::from_vec(mask, (LENGTH, LENGTH), &device())?;
        Ok(Self { cos: angles.cos()?, sin: angles.sin()?, mask })
    }

    fn turned(&self, x: &Tensor) -> Result<Tensor> {
        let half = x.dim(D::Minus1)? / 2;
        let (left, right) = (x.narrow(D::Minus1, 0, half)?, x.narrow(D::Minus1, half, half)?);
        let of = |a: &Tensor, b: &Tensor| -> Result<(Tensor, Tensor)> {
            Ok((a.broadcast_mul(&self.cos)?, b.broadcast_mul(&self.sin)?))
        };
        let ((a, b), (c, d)) = (of(&left, &right)?, of(&right, &left)?);
        Tensor::cat(&[(a - b)?, (c + d)?], D::Minus1)
    }
}

fn layer(name: String, tables: &Tables) -> Result<Part> {
    let square: &[usize] = &[WIDTH, WIDTH];
    let (up, down): (&[usize], &[usize]) = (&[WIDTH, HIDDEN], &[HIDDEN, WIDTH]);
    let shapes = [&[WIDTH][..], square, square, square, square, &[WIDTH], up, up, down];
    let vars = shapes.iter().map(|shape| Var::randn(0f32, 0.05, *shape, &device())).collect::<Result<Vec<Var>>>()?;
    let (own, tables) = (vars.clone(), tables.clone());
    let module = candle_nn::func(move |x| {
        let x = (attention(&own, &tables, &norm(x, &own[0])?)? + x)?;
        let normed = norm(&x, &own[5])?;
        let gated = (normed.broadcast_matmul(&own[6])?.silu()? * normed.broadcast_matmul(&own[7])?)?;
        gated.broadcast_matmul(&own[8])? + x
    });
    Ok(Part { name, module, vars })
}

fn attention(vars: &[Var], tables: &Tables, x: &Tensor) -> Result<Tensor> {
    let heads = |at: usize| {
        let of_heads = x.broadcast_matmul(&vars[at])?.reshape((BATCH, LENGTH, HEADS, WIDTH / HEADS))?;
        of_heads.transpose(1, 2)?.contiguous()
    };
    let (q, k, v) = (tables.turned(&heads(1)?)?, tables.turned(&heads(2)?)?, heads(3)?);
    let scores = (q.matmul(&k.t()?)? / ((WIDTH / HEADS) as f64).sqrt())?.broadcast_add(&tables.mask)?;
    let joined = candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&v)?;
    joined.transpose(1, 2)?.reshape((BATCH, LENGTH, WIDTH))?.broadcast_matmul(&vars[4])
}

fn norm(x: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let deviation = (x.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
    x.broadcast_div(&deviation)?.broadcast_mul(scale)
}

/// Cross entropy with the next words.
pub(crate) fn loss(logits: &Tensor, target: &Tensor) -> Result<Tensor> {
    candle_nn::loss::cross_entropy(&logits.flatten_to(1)?.to_dtype(DType::F32)?, target)
}
