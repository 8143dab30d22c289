//! A module's call that is made twice, and how it changes the total of live bytes in addition to the log.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::ops::Range;

use super::calls::ModuleCall;
use super::details::{Freed, details, freed_with_gradient, has_shared_gradients, size};
use super::steps::Steps;
use crate::analysis::waste::replay::Stop;
use crate::recording::DeviceView;
use crate::snapshot::{Lifetime, RecordKind};

/// Bytes of the scalar from which the wrapper's own backward pass starts, and of this scalar's gradient.
const SCALAR: i64 = 4;

pub(super) struct Replayed {
    /// The record after the call's last one.
    end: usize,
    /// The call's own allocs and frees as changes of the total, in order.
    own: Vec<i64>,
    /// Sum of the bytes that the call keeps, with its result.
    pub(super) kept: i64,
    /// Blocks that the call keeps, without its result.
    activations: Vec<Freed>,
    /// Blocks that the call's steps made and that are live after the last step, other than gradients.
    pub(super) details: Vec<Freed>,
    /// Blocks that are freed together with the result's gradient, which the wrapper's node keeps to its end.
    of_result: Vec<Freed>,
    /// Whether all blocks of `details` are known, and no other call uses a variable of this call.
    pub(super) is_exact: bool,
    pub(super) result: i64,
    input: i64,
    /// From the first alloc of the call's first step to the thread's first alloc after the call's last step.
    pass: Range<usize>,
}

impl Replayed {
    /// `None` if the call's steps are not known, or if nothing before the call leads to a variable.
    pub(super) fn of(device: &DeviceView<'_>, steps: &Steps, call: &ModuleCall) -> Option<Self> {
        let made = Made::of(device, call)?;
        let (first, last, result) = steps.within(&made.seqs)?;
        // The call's result is the last block that the call keeps and that a step of the backward pass belongs to.
        let of_pass = made.kept().filter(|life| steps.by_forward.contains_key(&life.seq)).last();
        let result = of_pass.filter(|life| life.seq == result)?;
        let (_, before) = *steps.all.get(steps.after(last))?;
        let input = device.lifetimes().get(before).filter(|life| (life.from as usize) <= call.records.start)?;
        let after = device.records.get(last + 1..)?.iter();
        let next = after.take_while(|record| record.kind != RecordKind::Alloc || record.thread != call.thread).count();
        let pass = first..last + 1 + next;
        let gradient = steps.gradient_before(device, &pass, result.block.size);
        let mut details = details(device, call.thread, &pass, input.block.size);
        details.extend(gradient.filter(|life| life.to as usize > pass.end).map(|life| Some(Freed::of(life))));
        let of_first = (first, *steps.by_forward.get(&result.seq)?.last()?);
        let of_result = (gradient.map(|life| life.seq), result.block.size);
        Some(Self {
            end: made.end,
            kept: made.kept().map(|life| size(life.block.size)).sum(),
            activations: made.kept().filter(|life| life.seq != result.seq).map(Freed::of).collect(),
            own: made.own,
            of_result: freed_with_gradient(device, call.thread, of_first, of_result),
            is_exact: details.iter().all(Option::is_some) && !has_shared_gradients(device, &pass),
            details: details.into_iter().flatten().collect(),
            result: size(result.block.size),
            input: size(input.block.size),
            pass,
        })
    }

    /// The changes of the total in addition to the log's. `gone` are the details of all calls, which are freed
    /// earlier.
    pub(super) fn stops<'a>(&'a self, gone: &'a HashSet<NonZeroU64>) -> impl Iterator<Item = Stop> + 'a {
        let Self { end, kept, result, input, pass, .. } = self;
        let copied = Stop::before(*end, vec![*result, -kept]);
        let of_result = || self.of_result.iter().filter(|block| !gone.contains(&block.seq));
        let beside: i64 = self.details.iter().chain(of_result()).map(|block| block.size).sum();
        // The gradient of the result is live twice.
        let own_pass = [SCALAR, SCALAR, *result, *result, -result, -SCALAR];
        let begins = [&[*input], &self.own[..], &own_pass].concat();
        let all = begins.iter().sum::<i64>();
        let ends = vec![-(all - result) - beside, *input, *input, -input, -input, -result];
        let again = [Stop::before(pass.start, begins), Stop::before(pass.end, ends).first()];
        let freed = self.activations.iter().chain(&self.details).chain(of_result());
        let freed = freed.filter_map(|block| Some(Stop::with(block.at?, block.size)));
        again.into_iter().chain([copied]).chain(freed)
    }
}

/// Blocks that a call allocates.
struct Made<'d> {
    end: usize,
    seqs: HashSet<NonZeroU64>,
    lives: Vec<&'d Lifetime>,
    /// Its allocs, and the frees of these blocks, as changes of the total.
    own: Vec<i64>,
}

impl<'d> Made<'d> {
    fn of(device: &'d DeviceView<'_>, call: &ModuleCall) -> Option<Self> {
        let end = call.records.end;
        let (mut seqs, mut lives, mut own) = (HashSet::new(), Vec::new(), Vec::new());
        let records = device.records.get(call.records.clone())?.iter();
        for record in records.filter(|record| record.thread == call.thread) {
            let Some(seq) = record.alloc_seq else { continue };
            if record.kind == RecordKind::Alloc {
                seqs.insert(seq);
                lives.extend(device.lifetimes().get(seq));
                own.push(size(record.size));
            } else if seqs.contains(&seq) {
                own.push(-size(record.size));
            }
        }
        Some(Self { end, seqs, lives, own })
    }

    /// Blocks that are live when the call has ended.
    fn kept(&self) -> impl Iterator<Item = &'d Lifetime> {
        self.lives.iter().copied().filter(|life| life.to as usize > self.end)
    }
}
