//! Why nothing is paired without the order and without uses: two programs with the same log, whose backward passes go through their branches in
//! another order.

use std::collections::HashMap;

use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor};
use memtrace::snapshot::{Device, DeviceSnapshot, Lifetime, Record, RecordKind, SnapshotData, StackId};
use memtrace::{DeviceView, Snapshot};

use crate::models::{Variables, data};
use crate::truth::Truth;

/// An event as the log has it: what happened, to which block of the log, of how many bytes, by which frames.
type Event = (RecordKind, usize, u64, Vec<String>);

/// Prints how much of the backward pass is another call's in the other program; false if it is none, or if the logs differ.
pub(crate) fn check() -> Result<bool> {
    // What the first run sets up is there then.
    recorded(false)?;
    let [(one, of_one), (other, of_other)] = [recorded(false)?, recorded(true)?];
    let (all, differing) = of_one.iter().zip(&of_other).fold((0, 0), |(all, differing), (one, other)| {
        let bytes = one.0;
        (all + bytes, if one == other { differing } else { differing + bytes })
    });
    let is_same = one == other && of_one.len() == of_other.len();
    println!(
        "twins: {} events, {}; of {all} bytes of the backward pass {differing} belong to another call",
        one.len(),
        if is_same { "the same log" } else { "the logs DIFFER" }
    );
    Ok(is_same && differing > 0)
}

/// The log, and of each block that the pass allocated the size and which block of the log its call returned.
fn recorded(is_turned: bool) -> Result<(Vec<Event>, Vec<(u64, Option<usize>)>)> {
    let session = memtrace::builder().min_size(0).start().map_err(candle_core::Error::wrap)?;
    let truth = Truth::default();
    let kept = trained(&truth, is_turned)?;
    let snapshot: Snapshot = session.snapshot();
    drop(kept);
    let is_trained_on = |device: &&DeviceSnapshot| (device.device == Device::Cpu) != cfg!(feature = "cuda");
    let device = snapshot.devices.iter().find(is_trained_on).expect("it was used");
    let event = |record: &Record| (record.kind, record.size, frames(&snapshot, record.alloc_stack));
    let view = DeviceView::of(&snapshot, device);
    let name = |seq| view.name(seq).and_then(|name| name.split_inclusive(')').next()).map(str::to_owned);
    let names: Vec<Option<String>> = view.lifetimes().iter().map(|life| name(Some(life.seq))).collect();
    let place = |owner: &String| names.iter().position(|name| name.as_ref() == Some(owner));
    let owner = |life: &Lifetime| {
        let owner = snapshot.context_names(life.block.context).last().and_then(|scope| truth.owner(scope))?;
        Some((life.block.size, owner.as_ref().and_then(place)))
    };
    let owners = view.lifetimes().iter().filter_map(owner).collect();
    // What the truth itself allocates depends on the numbers of its nodes.
    let is_programs = |(.., frames): &(RecordKind, u64, Vec<String>)| {
        let is_of = |frame: &str, of: &str| frame.trim_start_matches('<').starts_with(of);
        let innermost = frames.iter().find(|frame| is_of(frame, "backward::") || is_of(frame, "candle_core::"));
        innermost.is_none_or(|frame| !is_of(frame, "backward::truth"))
    };
    let events =
        device.records.iter().map(|record| (record.alloc_seq, event(record))).filter(|(_, event)| is_programs(event));
    let mut places = HashMap::new();
    let placed = |(block, (kind, size, frames))| {
        let next = places.len();
        (kind, *places.entry(block).or_insert(next), size, frames)
    };
    Ok((events.map(placed).collect(), owners))
}

fn frames(data: &SnapshotData, stack: StackId) -> Vec<String> {
    data.stacks.frames(stack).map(|frame| format!("{}:{:?}", frame.function_or_empty(), frame.line)).collect()
}

/// Two branches of three layers, added in one order or the other. Returns what is freed after the pass: a map of gradients is in any order.
fn trained(truth: &Truth, is_turned: bool) -> Result<(Tensor, GradStore)> {
    let mut vars = Variables::default();
    let weights = (0..6).map(|_| vars.add(&[64, 64])).collect::<Result<Vec<Tensor>>>()?;
    let (left, right, target) = (data(&[32, 64])?, data(&[32, 64])?, data(&[32, 64])?);
    let layer = |x: &Tensor, at: usize| -> Result<Tensor> { x.matmul(&weights[at])?.tanh() };
    let branch = |x: &Tensor, at: usize| layer(&layer(&layer(x, at)?, at + 1)?, at + 2);
    let branches = [branch(&left, 0)?, branch(&right, 3)?];
    let [one, other] = if is_turned { [&branches[1], &branches[0]] } else { [&branches[0], &branches[1]] };
    let loss = candle_nn::loss::mse(&(one + other)?, &target)?;
    let gradients = truth.during(&loss, || loss.backward())?;
    Ok((loss, gradients))
}
