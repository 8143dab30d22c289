//! Functions that run inside a `tracing` span of their own, like those of candle's models.

use super::Attribution;
use super::matched_frame::matched_frames;
use crate::snapshot::{Fact, StackId};

/// Whether the block was allocated in a function that enters a span of its own, recorded or not. Blocks allocated by
/// entering and leaving the span do not count.
pub fn belongs_to_a_span(data: &Attribution<'_>, stack: StackId) -> bool {
    matched_frames(data, stack).take_while(|frame| !frame.is(Fact::Tracer)).any(|frame| frame.is(Fact::Span))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::frame_place::FramePlace;
    use crate::snapshot::Rules;
    use crate::snapshot::testing::frame;

    fn enters(function: &str, file: &str) -> bool {
        FramePlace::of(&frame(function, file, 0)).is(&Rules::default(), Fact::Span)
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
