//! Llama with quantized weights from a GGUF file in memory: two prompts, and tokens after them.

use std::io::Cursor;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Result, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;

const WIDTH: usize = 512;
const HIDDEN: usize = 1536;
const WORDS: usize = 2048;
const LAYERS: usize = 2;
const HEADS: u32 = 8;
const PROMPT: usize = 128;
const TOKENS: usize = 8;

pub(crate) fn generate(device: &Device, last: &mut dyn FnMut()) -> Result<()> {
    let mut file = file()?;
    let content = gguf_file::Content::read(&mut file)?;
    let mut model = ModelWeights::from_gguf(content, &mut file, device)?;
    let mut forward = |tokens: usize, position| {
        let tokens = Tensor::zeros((1, tokens), DType::U32, device)?;
        model.forward(&tokens, position)?.to_vec2::<f32>()
    };
    let mut answer = || {
        forward(PROMPT, 0)?;
        (0..TOKENS).try_for_each(|token| forward(1, PROMPT + token).map(drop))
    };
    answer()?;
    last();
    answer()
}

fn file() -> Result<Cursor<Vec<u8>>> {
    let tensor = |shape: &[usize], dtype| QTensor::quantize(&Tensor::ones(shape, DType::F32, &Device::Cpu)?, dtype);
    let mut tensors = vec![
        ("token_embd.weight".to_owned(), tensor(&[WORDS, WIDTH], GgmlDType::Q4_0)?),
        ("output.weight".to_owned(), tensor(&[WORDS, WIDTH], GgmlDType::Q6K)?),
        ("output_norm.weight".to_owned(), tensor(&[WIDTH], GgmlDType::F32)?),
    ];
    for layer in 0..LAYERS {
        for (name, shape, dtype) in [
            ("attn_q", &[WIDTH, WIDTH][..], GgmlDType::Q4K),
            ("attn_k", &[WIDTH, WIDTH], GgmlDType::Q4K),
            ("attn_v", &[WIDTH, WIDTH], GgmlDType::Q5K),
            ("attn_output", &[WIDTH, WIDTH], GgmlDType::Q8_0),
            ("ffn_gate", &[HIDDEN, WIDTH], GgmlDType::Q4_0),
            ("ffn_up", &[HIDDEN, WIDTH], GgmlDType::Q4_0),
            ("ffn_down", &[WIDTH, HIDDEN], GgmlDType::Q5_0),
            ("attn_norm", &[WIDTH], GgmlDType::F32),
            ("ffn_norm", &[WIDTH], GgmlDType::F32),
        ] {
            tensors.push((format!("blk.{layer}.{name}.weight"), tensor(shape, dtype)?));
        }
    }
    let metadata = [
        ("llama.attention.head_count", Value::U32(HEADS)),
        ("llama.attention.head_count_kv", Value::U32(HEADS)),
        ("llama.block_count", Value::U32(LAYERS as u32)),
        ("llama.embedding_length", Value::U32(WIDTH as u32)),
        ("llama.rope.dimension_count", Value::U32(WIDTH as u32 / HEADS)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
    ];
    let metadata: Vec<_> = metadata.iter().map(|(name, value)| (*name, value)).collect();
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut file = Cursor::new(Vec::new());
    gguf_file::write(&mut file, &metadata, &tensors)?;
    file.set_position(0);
    Ok(file)
}
