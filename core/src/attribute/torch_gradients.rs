//! Gradients of PyTorch's parameters. A backward pass leaves them in `.grad`, and nothing else that is as large as a
//! weight. Blocks that live over a whole pass are weights. The pass leaves at most one gradient for each weight of a
//! size.

use std::num::NonZeroU64;

use super::gradients::{Live, outlives, sizes};
use super::hint::Hint;
use super::lifetimes::HintedLifetime;
use super::passes::{Passes, WholePasses, pass_at};
use crate::hashed::HashSet;
use crate::snapshot::NEVER;

pub(super) fn gradients(lives: &[HintedLifetime], backward: &Passes) -> HashSet<NonZeroU64> {
    let mut passes: Vec<_> = backward.values().flatten().collect();
    passes.sort_unstable_by_key(|pass| pass.from);
    let whole = WholePasses::with_ends(passes.iter().map(|pass| (pass.from, pass.next.unwrap_or(NEVER))));
    let is_weight = |life: &&HintedLifetime| life.hint != Hint::Backward && whole.is_any_within(life.from, life.to);
    let weights: Vec<HintedLifetime> = lives.iter().filter(is_weight).copied().collect();
    let begins: Vec<_> = passes.iter().map(|pass| pass.from).collect();
    let (mut live, mut found) = (Live::of(&weights, &begins), HashSet::default());
    for pass in passes {
        live.go_to(pass.from);
        let is_of_pass = |life: &&HintedLifetime| {
            life.hint == Hint::Backward && pass_at(backward, life).is_some_and(|of| of.from == pass.from)
        };
        let begin = lives.partition_point(|life| life.from < pass.from);
        let of_pass = lives[begin..].iter().take_while(|life| life.from <= pass.to).filter(is_of_pass);
        for (size, left) in sizes(of_pass.filter(|life| outlives(life, pass))) {
            if left.len() <= live.of_size(size) {
                found.extend(left.iter().map(|life| life.seq));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::attribute::Either;
    use crate::recording::DeviceView;
    use crate::snapshot::testing::{Story, frame, stacks};
    use crate::snapshot::{Category, StackId};

    #[test]
    fn what_a_pass_of_pytorch_leaves_in_the_size_of_a_weight_is_a_gradient() {
        let frames = vec![
            frame("at::_ops::bmm::redispatch", "??", 0),
            frame("torch::autograd::generated::BmmBackward0::apply", "??", 0),
            frame("torch::autograd::Engine::thread_main", "??", 0),
            frame("forward", "/home/u/net/train.py", 10),
            frame("main", "/home/u/net/train.py", 1),
        ];
        let mut story = Story::cuda(0);
        story.stacks(stacks(frames, [&[4][..], &[0, 3, 4], &[0, 1, 2]]));
        let [weight, forward, backward] = [1, 2, 3].map(StackId);
        story.alloc("w1", 8000).on(weight).alloc("w2", 8000).on(weight).alloc("w3", 6000).on(weight);
        story.alloc("x", 4000).on(forward);
        for (gradient, size) in [("g1", 8000), ("on the way", 8000), ("g2", 8000), ("g3", 6000), ("kept", 4000)] {
            story.alloc(gradient, size).on(backward);
        }
        story.free("on the way").free("x").alloc("more", 4000).on(weight);
        let data = story.build();
        let categories = DeviceView::of(&data, &data.devices[0]).categories().clone();
        let found = |first: u64| (first..first + 5).map(|seq| categories.get(std::num::NonZeroU64::new(seq)));
        let [gradient, detail] = [Category::Gradient, Category::AutogradDetail];
        assert_eq!(found(5).collect::<Vec<_>>(), [gradient, detail, gradient, gradient, Category::Unknown]);
        assert_eq!(categories.either(std::num::NonZeroU64::new(9)), Some(Either::GradientOrGraph));
    }
}
