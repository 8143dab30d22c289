//! Code that works within a span of its own: what candle's models do.

use super::origin::package_and_path;
use crate::snapshot::{Frame, SnapshotData, StackId};
use crate::sources::SPANNED_MODELS;

/// Functions of candle-transformers that enter a stored span in their first statement and keep it to
/// their end, with the files in which every function of that name does: debug information often has
/// bare names. Read in 0.11.1; what of it is in 0.8.4 and 0.9.1 is so there, too. Not complete: `forward`
/// of `models/llama.rs` is missing, because that of `Llama` itself enters none.
const SPANNED: [(&str, &[&str]); 5] = [
    (
        "forward",
        &[
            "models/with_tracing.rs",
            "models/mimi/seanet.rs",
            "models/nomic_bert.rs",
            "models/quantized_metavoice.rs",
            "models/quantized_stable_lm.rs",
            "models/segment_anything/image_encoder.rs",
            "models/segment_anything/mask_decoder.rs",
            "models/segment_anything/tiny_vit.rs",
            "models/stable_diffusion/attention.rs",
            "models/stable_diffusion/resnet.rs",
            "models/stable_diffusion/unet_2d.rs",
            "models/stable_diffusion/unet_2d_blocks.rs",
            "models/stable_lm.rs",
            "models/whisper/model.rs",
            "models/whisper/quantized_model.rs",
        ],
    ),
    ("forward_diff", &["models/with_tracing.rs"]),
    (
        "forward_attn",
        &[
            "models/quantized_gemma3.rs",
            "models/quantized_llama.rs",
            "models/quantized_phi.rs",
            "models/quantized_phi3.rs",
            "models/quantized_qwen2.rs",
        ],
    ),
    (
        "apply_rotary_emb",
        &[
            "models/granite.rs",
            "models/granitemoehybrid.rs",
            "models/lfm2.rs",
            "models/llama.rs",
            "models/mimi/transformer.rs",
            "models/quantized_lfm2.rs",
            "models/quantized_llama.rs",
            "models/quantized_phi.rs",
            "models/quantized_phi3.rs",
            "models/quantized_qwen2.rs",
            "models/voxtral/voxtral_llama.rs",
        ],
    ),
    ("forward_with_img", &["models/mixformer.rs", "models/quantized_mixformer.rs"]),
];

/// Is this a stack of code that enters a span of its own, whether or not anybody heard of that span?
/// The entering and leaving itself does not count.
pub fn belongs_to_a_span(data: &SnapshotData, stack: StackId) -> bool {
    data.stacks.frames(stack).take_while(|frame| !is_tracing(frame)).any(enters_a_span)
}

fn is_tracing(frame: &Frame) -> bool {
    package_and_path(&frame.file).is_some_and(|(package, _)| package.starts_with("tracing"))
}

fn enters_a_span(frame: &Frame) -> bool {
    let function = frame.function.rsplit("::").next();
    let Some((_, files)) = SPANNED.iter().find(|(name, _)| function == Some(name)) else { return false };
    let in_one = |(package, path): (&str, &str)| files.contains(&path) && package.replace('-', "_") == SPANNED_MODELS;
    package_and_path(&frame.file).is_some_and(in_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enters(function: &str, file: &str) -> bool {
        enters_a_span(&Frame { function: function.into(), file: file.into(), ..Frame::default() })
    }

    #[test]
    fn functions_that_enter_a_span_are_known_by_file_and_name() {
        let models = "/home/u/.cargo/registry/src/index-1/candle-transformers-0.11.1/src/models";
        let linear = "<candle_transformers::models::with_tracing::Linear as candle_core::Module>::forward";
        assert!(enters("forward", &format!("{models}/with_tracing.rs")));
        assert!(enters(linear, &format!("{models}/with_tracing.rs")));
        assert!(enters("forward", "/home/u/candle/candle-transformers/src/models/with_tracing.rs"));
        assert!(enters("apply_rotary_emb", &format!("{models}/llama.rs")));
        assert!(!enters("forward", &format!("{models}/llama.rs")), "that of Llama itself enters none");
        assert!(!enters("linear_no_bias", &format!("{models}/with_tracing.rs")), "loading");
        assert!(!enters("forward::{closure#0}", &format!("{models}/with_tracing.rs")));
        for model in ["resnet.rs", "vgg.rs", "gemma.rs"] {
            assert!(!enters("forward", &format!("{models}/{model}")), "{model} has no spans");
        }
        assert!(!enters("forward", "/home/u/my-model/src/models/with_tracing.rs"));
        assert!(!enters("forward", ""));
    }
}
