//! What the rules say about each frame, found once: stacks share frames, and one match with all rules takes microseconds.

use std::cell::OnceCell;
use std::ops::Deref;

use super::Origin;
use super::frame_place::FramePlace;
use super::hashed::HashMap;
use super::torch::is_optimizer;
use crate::snapshot::{Category, CodeAddress, Fact, Frame, Rules, SnapshotData, StackId, SymbolName};

/// The facts that are asked of frames.
const ASKED: [Fact; 15] = [
    Fact::Allocator,
    Fact::Constant,
    Fact::Forward,
    Fact::Input,
    Fact::Kernel,
    Fact::Move,
    Fact::Optimizer,
    Fact::Own,
    Fact::Pass,
    Fact::Product,
    Fact::Span,
    Fact::Square,
    Fact::Structure,
    Fact::Tracer,
    Fact::Variable,
];

/// What the rules say about a frame.
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
    fn of(frame: MatchedFrame<'_>) -> Self {
        let facts = ASKED.into_iter().filter(|fact| frame.is(*fact)).fold(0, |bits, fact| bits | 1 << fact as u32);
        let function = frame.function();
        let offset = function.as_ptr().addr().wrapping_sub(frame.frame.function_or_empty().as_ptr().addr());
        Self {
            origin: frame.origin(),
            facts,
            is_operator: frame.operator().is_some(),
            category: frame.category(),
            function: (offset as u32, function.len() as u32),
        }
    }
}

/// The matches of all frames of a recording, by their numbers.
#[derive(Debug)]
struct RuleMatches(Vec<RuleMatch>);

impl RuleMatches {
    fn of(data: &SnapshotData) -> Self {
        let rules = &data.settings.rules;
        let mut known: HashMap<&Frame, RuleMatch> = HashMap::default();
        let mut found =
            |frame| *known.entry(frame).or_insert_with(|| RuleMatch::of(MatchedFrame { frame, rules, known: None }));
        Self(data.stacks.frames.iter().map(&mut found).collect())
    }
}

/// A recording's data whose frames are matched with its rules once, when the first of them is asked for.
#[derive(Debug)]
pub struct Attribution<'a> {
    data: &'a SnapshotData,
    matches: OnceCell<RuleMatches>,
}

impl<'a> Attribution<'a> {
    /// Takes no time yet.
    pub fn new(data: &'a SnapshotData) -> Self {
        Self { data, matches: OnceCell::new() }
    }

    /// The data.
    pub fn data(&self) -> &'a SnapshotData {
        self.data
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
    known: Option<RuleMatch>,
}

impl<'a> MatchedFrame<'a> {
    pub(crate) fn origin(self) -> Origin {
        self.known.map_or_else(|| Origin::of(self.rules, self.frame), |known| known.origin)
    }

    pub(super) fn is(self, fact: Fact) -> bool {
        if let Some(known) = self.known {
            debug_assert!(ASKED.into_iter().any(|asked| asked as u32 == fact as u32), "{fact:?} has no bit");
            return known.facts >> fact as u32 & 1 == 1;
        }
        let place = FramePlace::of(self.frame);
        match fact {
            Fact::Own | Fact::Tracer => self.rules.names(fact, &place.package),
            Fact::Optimizer => place.is(self.rules, fact) || is_optimizer(self.frame),
            _ => place.is(self.rules, fact),
        }
    }

    /// The function, without path and generics.
    pub(super) fn function(self) -> &'a str {
        let name = self.frame.function_or_empty();
        let known = self.known.and_then(|RuleMatch { function: (from, length), .. }| {
            name.get(from as usize..from as usize + length as usize)
        });
        known.unwrap_or_else(|| SymbolName(name).function())
    }

    /// The operator's name, if the function is one.
    pub(super) fn operator(self) -> Option<&'a str> {
        let may_be_one = self.known.is_none_or(|known| known.is_operator);
        may_be_one.then(|| FramePlace::of(self.frame).operator(self.rules, self.frame.function_or_empty())).flatten()
    }

    pub(super) fn category(self) -> Option<Category> {
        match self.known {
            Some(known) => known.category,
            None => {
                let place = FramePlace::of(self.frame);
                self.rules.category(&place.package, &place.file, place.function)
            }
        }
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
        let known = known.0.get(number).copied();
        Some(MatchedFrame { frame: data.stacks.frames.get(number)?, rules, known })
    })
}
