//! What the rules say about each frame. It is computed once, because stacks share frames, and a match with all rules
//! takes microseconds.

use std::cell::OnceCell;
use std::ops::Deref;

use super::Origin;
use super::frame_place::FramePlace;
use super::torch::{is_optimizer, is_script};
use crate::hashed::HashMap;
use crate::snapshot::{Category, CodeAddress, Fact, Frame, Rules, SnapshotData, StackId};

#[derive(Clone, Copy, Debug)]
struct RuleMatch {
    origin: Origin,
    /// A bit for each [`Fact`].
    facts: u32,
    is_operator: bool,
    category: Option<Category>,
    /// Offset and length of the function in the symbol name.
    function: (u32, u32),
}

impl RuleMatch {
    fn of(rules: &Rules, frame: &Frame) -> Self {
        let (place, name) = (FramePlace::of(frame), frame.function_or_empty());
        let is = |fact: &Fact| match fact {
            // These rules name crates.
            Fact::Framework | Fact::Own | Fact::Pool | Fact::Tracer => rules.names(*fact, &place.package),
            Fact::Optimizer => place.is(rules, *fact) || is_optimizer(frame),
            _ => place.is(rules, *fact),
        };
        let offset = place.function.as_ptr().addr().wrapping_sub(name.as_ptr().addr());
        Self {
            origin: Origin::of(rules, frame),
            facts: Fact::ALL.iter().filter(|fact| is(fact)).fold(0, |bits, fact| bits | 1 << *fact as u32),
            is_operator: place.operator(rules, name).is_some(),
            category: rules.category(&place.package, &place.file, place.function),
            function: (offset as u32, place.function.len() as u32),
        }
    }
}

/// The matches of all frames of a recording, by frame number.
#[derive(Debug)]
struct RuleMatches(Vec<RuleMatch>);

impl RuleMatches {
    fn of(data: &SnapshotData) -> Self {
        let rules = &data.settings.rules;
        let mut known: HashMap<&Frame, RuleMatch> = HashMap::default();
        let mut found = |frame| *known.entry(frame).or_insert_with(|| RuleMatch::of(rules, frame));
        Self(data.stacks.frames.iter().map(&mut found).collect())
    }
}

/// A recording's data. Its frames are matched with its rules once, on first use.
#[derive(Debug)]
pub struct Attribution<'a> {
    data: &'a SnapshotData,
    matches: OnceCell<RuleMatches>,
    is_python: OnceCell<bool>,
}

impl<'a> Attribution<'a> {
    /// Wraps the data. Frames are matched later.
    pub fn new(data: &'a SnapshotData) -> Self {
        Self { data, matches: OnceCell::new(), is_python: OnceCell::new() }
    }

    /// The wrapped data.
    pub fn data(&self) -> &'a SnapshotData {
        self.data
    }

    /// Whether the recording is of a Python program: a snapshot of PyTorch.
    pub(crate) fn is_python(&self) -> bool {
        let has_scripts = || self.data.stacks.frames.iter().any(|frame| is_script(frame.file_or_empty()));
        *self.is_python.get_or_init(has_scripts)
    }

    fn matches(&self) -> &RuleMatches {
        self.matches.get_or_init(|| RuleMatches::of(self.data))
    }
}

impl Deref for Attribution<'_> {
    type Target = SnapshotData;

    fn deref(&self) -> &SnapshotData {
        self.data
    }
}

/// A frame and what the rules say about it.
#[derive(Clone, Copy)]
pub(crate) struct MatchedFrame<'a> {
    pub(crate) frame: &'a Frame,
    rules: &'a Rules,
    known: RuleMatch,
}

impl<'a> MatchedFrame<'a> {
    pub(crate) fn origin(self) -> Origin {
        self.known.origin
    }

    pub(super) fn is(self, fact: Fact) -> bool {
        self.known.facts >> fact as u32 & 1 == 1
    }

    /// The function, without path and generics.
    pub(super) fn function(self) -> &'a str {
        let (from, length) = self.known.function;
        self.frame.function_or_empty().get(from as usize..from as usize + length as usize).unwrap_or_default()
    }

    pub(super) fn operator(self) -> Option<&'a str> {
        let of_place = || FramePlace::of(self.frame).operator(self.rules, self.frame.function_or_empty());
        self.known.is_operator.then(of_place).flatten()
    }

    pub(super) fn implemented(self) -> Option<&'a str> {
        let of_place = || FramePlace::of(self.frame).implemented(self.rules);
        self.function().ends_with("_impl").then(of_place).flatten()
    }

    pub(super) fn category(self) -> Option<Category> {
        self.known.category
    }
}

/// The frames of a stack, innermost first.
pub(crate) fn matched_frames<'d>(
    data: &'d Attribution<'_>,
    stack: StackId,
) -> impl DoubleEndedIterator<Item = MatchedFrame<'d>> {
    matched(data, data.stacks.frame_numbers(stack))
}

/// The frames of an address, innermost first.
pub(super) fn matched_at<'a>(
    data: &'a Attribution<'a>,
    address: &CodeAddress,
) -> impl DoubleEndedIterator<Item = MatchedFrame<'a>> {
    let start = address.frames.start as usize;
    matched(data, start..start + data.stacks.frames_at(address).len())
}

fn matched<'d>(
    data: &'d Attribution<'_>,
    numbers: impl DoubleEndedIterator<Item = usize>,
) -> impl DoubleEndedIterator<Item = MatchedFrame<'d>> {
    let (known, rules) = (data.matches(), &data.settings.rules);
    numbers.filter_map(move |number| {
        Some(MatchedFrame { frame: data.stacks.frames.get(number)?, rules, known: *known.0.get(number)? })
    })
}
