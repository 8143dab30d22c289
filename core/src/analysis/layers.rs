//! The layers of blocks: the module, or without spans the path of a parameter's name.
//!
//! A gradient that the program named, and whose forward call is known, tells which parameter that call used. So the call, what
//! it returned and what the backward pass allocated for it belong to the parameter's layer. Sizes tell nothing.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::num::NonZeroU64;

use foldhash::fast::RandomState;

use crate::attribute::module;
use crate::recording::DeviceView;
use crate::snapshot::{Block, BlockName, Category, ContextId};

/// Label of blocks whose layer is not known.
pub(crate) const NO_LAYER: &str = "(no layer)";

/// What is known of a call or a path; `None` where it is ambiguous.
type Known<K, V> = HashMap<K, Option<V>, RandomState>;

pub(super) struct Layers<'a> {
    device: &'a DeviceView<'a>,
    /// By the block that a call returned, the path of the parameter that it used.
    paths: Known<NonZeroU64, &'a str>,
    /// By path, the module in which its parameters are used.
    modules: Known<&'a str, String>,
    by_context: RefCell<HashMap<ContextId, Option<String>, RandomState>>,
}

impl<'a> Layers<'a> {
    pub(super) fn of(device: &'a DeviceView<'a>) -> Self {
        let (paths, modules, by_context) = (Known::default(), Known::default(), RefCell::default());
        let mut found = Self { device, paths, modules, by_context };
        for name in device.names.iter().filter(|name| name.category == Category::Gradient) {
            let call = device.pairings().get(Some(name.seq)).map(|pairing| pairing.forward);
            let Some((call, path)) = call.zip(path(name)) else { continue };
            agree(&mut found.paths, call, path);
            if let Some(module) = device.lifetimes().get(call).and_then(|call| found.module(call.block.context)) {
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
        let mut known = self.by_context.borrow_mut();
        known.entry(context).or_insert_with(|| module(self.device.data(), context)).clone()
    }
}

fn agree<K: Eq + std::hash::Hash, V: PartialEq>(known: &mut Known<K, V>, key: K, value: V) {
    match known.get_mut(&key) {
        Some(found) if found.as_ref() != Some(&value) => *found = None,
        Some(_) => {}
        None => {
            known.insert(key, Some(value));
        }
    }
}

fn is_of_parameter(name: &BlockName) -> bool {
    matches!(name.category, Category::Parameter | Category::Gradient | Category::OptimizerState)
}

/// `layer4.0.conv2` of `layer4.0.conv2.weight`, `grad of …` and `velocity of layer4.0.conv2.weight f32[512, 512, 3, 3]`.
fn path(name: &BlockName) -> Option<&str> {
    let parameter = name.name.split_once(" of ").map_or(&*name.name, |(_, parameter)| parameter);
    Some(parameter.split(' ').next()?.rsplit_once('.')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_name_is_what_comes_before_its_last_part() {
        let path_of = |name: &str| {
            let name = BlockName { seq: NonZeroU64::MIN, name: name.to_owned(), category: Category::Gradient };
            path(&name).map(str::to_owned)
        };
        assert_eq!(path_of("grad of layer4.0.conv2.weight f32[512, 3]").as_deref(), Some("layer4.0.conv2"));
        assert_eq!(path_of("fc.bias").as_deref(), Some("fc"));
        assert_eq!(path_of("second moment of fc.bias f32[3]").as_deref(), Some("fc"));
        assert_eq!([path_of("gradient"), path_of("weight f32[2.5]")], [None, None]);
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
