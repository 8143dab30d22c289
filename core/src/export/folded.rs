//! Folded (collapsed) stacks, the input of flamegraph tools: one line per stack, `outermost;…;innermost value`.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use super::{Export, LeftOut, budget};
use crate::analysis::{LiveSet, Moment, NO_STACK, label_of_rest, place, without_numbers};
use crate::attribute::{Origin, is_pool};
use crate::error::Error;
use crate::hashed::summed;
use crate::recording::Recording;
use crate::snapshot::{ContextId, Device, Frame, SnapshotData, StackId, SymbolName, Weight};
use crate::visible;

/// The unit of the values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// Live bytes.
    #[default]
    Bytes,
    /// Live blocks.
    Count,
}

/// Folded stacks of the blocks that were live at a moment, sorted, for flamegraph tools: `outer;…;inner bytes`.
/// Neighbouring frames of a thread pool are merged. With [`Measure::Bytes`] the values add up to the device's total at
/// that moment. In a sample they are estimates, which the format cannot express.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    /// The unit of the values.
    pub measure: Measure,
    /// The device; the main one if `None`.
    pub device: Option<Device>,
    /// The moment; the peak by default.
    pub moment: Moment,
    /// Adds the scopes as outermost frames in brackets. A call path that ran in several scopes then has several stacks.
    pub scopes: bool,
    /// Adds the modules of the model in the same way, without other scopes.
    pub modules: bool,
    /// Keeps the frames of the standard library, of memtrace and of thread pools.
    pub all_frames: bool,
    /// The size limit: beyond it the smallest stacks are summed in one line. No limit if `None`.
    pub max_bytes: Option<u64>,
}

impl Export for Folded {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let recording = Recording::new(data);
        let Some(device) = recording.device_or_main(self.device) else { return Ok(LeftOut::default()) };
        let lines = lines(&device.at(&self.moment)?, self);
        budget::rows(self.max_bytes, lines.len(), out, |count, _, out| {
            for (stack, value) in largest(&lines, count).iter() {
                writeln!(out, "{stack} {value}")?;
            }
            Ok(())
        })
    }
}

/// The `count` largest lines, by name, and the sum of the others.
pub(super) fn largest(lines: &BTreeMap<String, u64>, count: usize) -> Cow<'_, BTreeMap<String, u64>> {
    if count >= lines.len() {
        return Cow::Borrowed(lines);
    }
    let mut by_value: Vec<(&String, u64)> = lines.iter().map(|(stack, value)| (stack, *value)).collect();
    by_value.sort_by_key(|(stack, value)| (Reverse(*value), *stack));
    let (kept, rest) = by_value.split_at(count);
    let mut largest: BTreeMap<String, u64> = kept.iter().map(|(stack, value)| ((*stack).clone(), *value)).collect();
    let sum: u64 = rest.iter().map(|(_, value)| value).sum();
    *largest.entry(smaller(rest.len())).or_insert(0) += sum;
    Cow::Owned(largest)
}

pub(super) fn lines(live: &LiveSet<'_>, options: &Folded) -> BTreeMap<String, u64> {
    with_rest(live, options, stacks(live, options, true))
}

/// [`lines`] by function: frames without line numbers.
#[cfg(feature = "flamegraph")]
pub(super) fn functions(live: &LiveSet<'_>, options: &Folded) -> BTreeMap<String, u64> {
    with_rest(live, options, stacks(live, options, false))
}

fn with_rest(live: &LiveSet<'_>, options: &Folded, mut lines: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    if options.measure == Measure::Bytes {
        let before = label_of_rest(live.device, &live.blocks).trim_matches(['(', ')']);
        let rest = [(before, live.not_recorded), ("blocks below min_size", live.below_threshold)];
        for (name, bytes) in rest.into_iter().filter(|(_, bytes)| *bytes > 0) {
            *lines.entry(name.to_owned()).or_insert(0) += bytes;
        }
    }
    lines
}

/// The most bytes of text. A longer text would not help anyone, and a hostile capture could fill the memory with it.
const MOST_TEXT: usize = 256 << 20;

/// A line for each stack in its scopes. Beyond [`MOST_TEXT`] the smallest stacks are summed.
fn stacks(live: &LiveSet<'_>, options: &Folded, by_line: bool) -> BTreeMap<String, u64> {
    let sums = summed(live.weights().map(|(block, weight)| ((block.context, block.stack), weight)));
    let value = |sum: Weight| match options.measure {
        Measure::Bytes => sum.bytes,
        Measure::Count => sum.blocks(),
    };
    let mut sums: Vec<_> = sums.into_iter().map(|(key, sum)| (key, value(sum))).collect();
    sums.sort_unstable_by_key(|(key, value)| (Reverse(*value), *key));
    let mut names = FrameNames { data: live.device.data(), options, names: HashMap::new(), lines: by_line };
    let (mut lines, mut text) = (BTreeMap::new(), 0);
    for (at, ((context, stack), value)) in sums.iter().enumerate() {
        if text > MOST_TEXT {
            let rest = sums.get(at..).unwrap_or_default();
            lines.insert(smaller(rest.len()), rest.iter().map(|(_, value)| value).sum());
            break;
        }
        let line = names.folded(*context, *stack);
        text += line.len();
        *lines.entry(line).or_insert(0) += value;
    }
    lines
}

fn smaller(stacks: usize) -> String {
    format!("({stacks} smaller stacks)")
}

/// The name that replaces neighbouring frames of thread pools.
const POOL: &str = "(thread pool)";

/// Names of frames, each made once.
struct FrameNames<'a> {
    data: &'a SnapshotData,
    options: &'a Folded,
    /// The name of each frame, by the address of the [`Frame`]; `None` for hidden frames.
    names: HashMap<*const Frame, Option<String>>,
    /// If false, names have no line numbers, so that they are equal in two recordings even if an edit moved lines.
    lines: bool,
}

impl<'a> FrameNames<'a> {
    /// The stack, outermost frame first. If the options ask for scopes, they come first, in brackets.
    fn folded(&mut self, context: ContextId, stack: StackId) -> String {
        let mut line = String::new();
        for name in self.outermost(context) {
            append(&mut line, &format!("[{}]", clean(name)));
        }
        for frame in self.data.stacks.frames(stack).rev() {
            match self.name(frame) {
                Some(name) if name != POOL || !line.ends_with(POOL) => append(&mut line, name),
                _ => {}
            }
        }
        if line.is_empty() { NO_STACK.to_owned() } else { line }
    }

    fn outermost(&self, context: ContextId) -> Vec<&'a str> {
        let Folded { scopes, modules, .. } = self.options;
        let is_shown =
            |id: &ContextId| *scopes || self.data.contexts.get(id.0 as usize).is_some_and(|node| node.module);
        let names = self.data.context_ids(context).into_iter().zip(self.data.context_names(context));
        names.filter(|(id, _)| (*scopes || *modules) && is_shown(id)).map(|(_, name)| name).collect()
    }

    fn name(&mut self, frame: &'a Frame) -> Option<&str> {
        let (rules, all, lines) = (&self.data.settings.rules, self.options.all_frames, self.lines);
        let name = || match Origin::of(rules, frame) {
            Origin::Std | Origin::Memtrace if !all => None,
            _ if !all && is_pool(rules, frame) => Some(POOL.to_owned()),
            _ if lines => Some(clean(&function_and_line(frame, &self.data.process.working_dir))),
            _ => {
                let frame =
                    Frame { line: None, function: Some(without_numbers(frame.function_or_empty())), ..frame.clone() };
                Some(clean(&function_and_line(&frame, &self.data.process.working_dir)))
            }
        };
        self.names.entry(std::ptr::from_ref(frame)).or_insert_with(name).as_deref()
    }
}

/// `Net::forward src/model.rs:7`. The place is at the end, which viewers cut.
fn function_and_line(frame: &Frame, working_dir: &str) -> String {
    let function = SymbolName(frame.function_or_empty()).short();
    match frame.known_file() {
        Some(_) => format!("{function} {}", place(frame, working_dir)),
        None => function,
    }
}

fn append(line: &mut String, name: &str) {
    if !line.is_empty() && !name.is_empty() {
        line.push(';');
    }
    line.push_str(name);
}

/// Replaces `;`, which separates frames but also occurs in Rust's array types.
fn clean(name: &str) -> String {
    visible::line(name).replace(';', ",")
}
