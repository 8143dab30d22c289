//! The layers of blocks. A layer is a part of the model: the module, or, without spans, the path in a parameter's
//! name.
//!
//! The name of a gradient contains the name of its parameter. If the forward call of a named gradient is known, this
//! call used the parameter. So the call's result, and the blocks that the backward pass allocated for the call, belong
//! to the parameter's layer. The sizes of blocks are not used.

use std::borrow::Cow;
use std::cell::RefCell;
use std::num::NonZeroU64;

use crate::attribute::module;
use crate::hashed::HashMap;
use crate::memo::Memo;
use crate::recording::DeviceView;
use crate::snapshot::{Block, BlockName, Category, ContextId, LONGEST_NAME};

/// Label of blocks whose layer is not known.
pub(crate) const NO_LAYER: &str = "(no layer)";

/// What is known about calls or paths. The value is `None` if two facts contradict each other.
type Known<K, V> = HashMap<K, Option<V>>;

pub(super) struct Layers<'a> {
    device: &'a DeviceView<'a>,
    /// For each block that a call returned, the path of the parameter that the call used.
    paths: Known<NonZeroU64, &'a str>,
    /// For each path, the module that uses its parameters.
    modules: Known<&'a str, String>,
    by_context: RefCell<Memo<'a, ContextId, Option<String>>>,
}

impl<'a> Layers<'a> {
    pub(super) fn of(device: &'a DeviceView<'a>) -> Self {
        let (paths, modules) = (Known::default(), Known::default());
        let by_context = RefCell::new(Memo::of(|context| module(device.data(), context)));
        let mut found = Self { device, paths, modules, by_context };
        for name in device.names.iter().filter(|name| name.category == Category::Gradient) {
            let Some((pairing, path)) = device.pairings().get(Some(name.seq)).zip(path(name)) else { continue };
            agree(&mut found.paths, pairing.forward, path);
            if pairing.is_added {
                // The gradient may be a sum. Another call, perhaps of another module, then used the parameter, too.
                found.modules.insert(path, None);
            }
            let call = device.lifetimes().get(pairing.forward);
            if let Some(module) = call.and_then(|call| found.module(call.block.context)) {
                agree(&mut found.modules, path, module);
            }
        }
        found
    }

    pub(super) fn are_known(&self) -> bool {
        !self.paths.is_empty()
    }

    pub(super) fn label(&self, block: &Block) -> Cow<'a, str> {
        let parameter = self.device.named(block.seq).filter(|name| is_of_parameter(name)).and_then(path);
        if let Some(path) = parameter {
            return self.modules.get(path).cloned().flatten().map_or(path.into(), Cow::Owned);
        }
        let forward = self.device.pairings().get(block.seq).map(|pairing| pairing.forward);
        let call = forward.and_then(|call| self.device.lifetimes().get(call)).map_or(block, |call| &call.block);
        let path = || call.seq.and_then(|call| self.paths.get(&call).copied().flatten());
        self.module(call.context).map_or_else(|| path().unwrap_or(NO_LAYER).into(), Cow::Owned)
    }

    fn module(&self, context: ContextId) -> Option<String> {
        self.by_context.borrow_mut().get(context)
    }
}

fn agree<K: Eq + std::hash::Hash, V: PartialEq>(known: &mut Known<K, V>, key: K, value: V) {
    let differs = |found: &mut Option<V>| _ = found.take_if(|found| *found != value);
    known.entry(key).and_modify(differs).or_insert(Some(value));
}

fn is_of_parameter(name: &BlockName) -> bool {
    matches!(name.category, Category::Parameter | Category::Gradient | Category::OptimizerState)
}

/// The path in a name: `layer4.0.conv2` for `layer4.0.conv2.weight`, for its `grad of …`, and for
/// `velocity of layer4.0.conv2.weight f32[512, 512, 3, 3]`.
fn path(name: &BlockName) -> Option<&str> {
    let whole = Some(&*name.name).filter(|name| name.len() < LONGEST_NAME)?;
    let parameter = match name.category {
        Category::Gradient => whole.strip_prefix("grad of ")?,
        Category::OptimizerState => whole.split_once(" of ")?.1,
        _ => whole,
    };
    let shape = parameter.rfind('[').filter(|_| parameter.ends_with(']'));
    let parameter = shape.and_then(|at| parameter[..at].rsplit_once(' ')).map_or(parameter, |(name, _)| name);
    Some(parameter.rsplit_once('.')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_name_is_what_comes_before_its_last_part() {
        use Category::{Gradient, OptimizerState, Parameter};
        let cases = [
            (Parameter, "fc.bias", Some("fc")),
            (Parameter, "encoder.block 1.weight f32[512, 3]", Some("encoder.block 1")),
            (Parameter, "bag of words.emb.weight", Some("bag of words.emb")),
            (Parameter, "weight f32[2, 5]", None),
            (Gradient, "grad of layer4.0.conv2.weight f32[512, 3]", Some("layer4.0.conv2")),
            (Gradient, "grad of bag of words.emb.weight", Some("bag of words.emb")),
            (Gradient, "gradient", None),
            (OptimizerState, "second moment of fc.bias f32[3]", Some("fc")),
            (OptimizerState, "exp_avg.fc.weight", None),
        ];
        for (category, name, expected) in cases {
            let name = BlockName { seq: NonZeroU64::MIN, name: name.to_owned(), category };
            assert_eq!(path(&name), expected, "{name:?}");
        }
        let longest = "a.".repeat(LONGEST_NAME / 2);
        assert_eq!(path(&BlockName { seq: NonZeroU64::MIN, name: longest, category: Parameter }), None);
    }

    #[test]
    fn what_two_disagree_on_is_not_known() {
        let mut known = Known::default();
        for (key, value) in [(1, "a"), (1, "a"), (2, "a"), (2, "b"), (2, "b")] {
            agree(&mut known, key, value);
        }
        assert_eq!((known[&1], known[&2]), (Some("a"), None));
    }
}
