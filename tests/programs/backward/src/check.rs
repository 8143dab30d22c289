//! Compares the pairings of a recording with the truth.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::num::NonZeroU64;

use memtrace::DeviceView;
use memtrace::analysis::operator_label;
use memtrace::snapshot::{Device, DeviceSnapshot, SnapshotData};

use crate::truth::Truth;

/// Bytes that backward passes allocated.
#[derive(Default)]
pub(crate) struct Bytes {
    right: u64,
    unknown: u64,
    /// Part of `unknown`: bytes of no single call, or of one whose block is not recorded.
    without_call: u64,
    pub(crate) wrong: u64,
    other_threads: u64,
}

impl Bytes {
    /// `is_full`: prints what is unknown, by operator.
    pub(crate) fn of(data: &SnapshotData, truth: &Truth, is_full: bool) -> Self {
        let is_trained_on = |device: &&DeviceSnapshot| (device.device == Device::Cpu) != cfg!(feature = "cuda");
        let Some(device) = data.devices.iter().find(is_trained_on) else { return Self::default() };
        let view = DeviceView::of(data, device);
        let main = view.lifetimes().iter().next().map(|life| life.block.thread);
        let recorded: HashSet<&str> = view.lifetimes().iter().map(|life| node(&view, life.seq)).collect();
        let (mut bytes, mut unknown) = (Self::default(), BTreeMap::<String, u64>::new());
        for life in view.lifetimes().iter() {
            let Some(owner) = data.context_names(life.block.context).last().and_then(|scope| truth.owner(scope)) else {
                bytes.other_threads += if main == Some(life.block.thread) { 0 } else { life.block.size };
                continue;
            };
            let found = view.pairings().get(Some(life.seq)).map(|pairing| node(&view, pairing.forward));
            let label = || operator_label(view.data(), life.block.stack.0);
            match (&found, &owner) {
                (None, _) => {
                    bytes.unknown += life.block.size;
                    let has_call = owner.as_deref().is_some_and(|owner| recorded.contains(owner));
                    bytes.without_call += if has_call { 0 } else { life.block.size };
                    *unknown
                        .entry(format!("{} ({})", label(), if has_call { "has a call" } else { "has none" }))
                        .or_default() += life.block.size;
                }
                (Some(found), Some(owner)) if *found == owner => bytes.right += life.block.size,
                (Some(found), _) => {
                    bytes.wrong += life.block.size;
                    println!("wrong: {} of {owner:?} is said to be of {found}: {life:?}", label());
                }
            }
        }
        if is_full {
            unknown.iter().for_each(|(what, bytes)| println!("unknown: {bytes} {what}"));
        }
        bytes
    }

    pub(crate) fn right_part(&self) -> f64 {
        100. * self.right as f64 / (self.right + self.unknown + self.wrong).max(1) as f64
    }
}

/// The node whose value the block holds, as the program named it: `node TensorId(7) f32[2, 3]`.
fn node<'a>(view: &'a DeviceView<'_>, block: NonZeroU64) -> &'a str {
    let name = view.name(Some(block)).unwrap_or("a block without a name");
    name.split_inclusive(')').next().unwrap_or(name)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.right + self.unknown + self.wrong;
        let part = |bytes: u64| format!("{:.1} %", 100. * bytes as f64 / total.max(1) as f64);
        let Self { right, unknown, without_call, wrong, other_threads } = *self;
        let [right, unknown, without_call] = [right, unknown, without_call].map(part);
        write!(f, "{total:>12} {right:>7} {unknown:>8} {without_call:>8} {wrong:>6} {other_threads:>14}")
    }
}
