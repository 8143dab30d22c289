//! Why nothing is paired without the order and without uses: pairs of programs with the same log, in which steps of the backward
//! pass belong to other calls. Both programs of a pair have the same graph, but compute some of its results in another order.

use std::collections::HashMap;

use candle_core::backprop::GradStore;
use candle_core::{D, DType, IndexOp, Result, Tensor};
use memtrace::snapshot::{Device, DeviceSnapshot, Lifetime, Record, RecordKind, SnapshotData, StackId};
use memtrace::{DeviceView, Snapshot};

use crate::device;
use crate::models::{Variables, data};
use crate::truth::Truth;

/// An event as the log has it: what happened, to which block of the log, of how many bytes, by which frames.
type Event = (RecordKind, usize, u64, Vec<String>);

/// The size of a block, and which block of the log its call returned.
type Owned = (u64, Option<usize>);

/// Trains one step, in one order or the other. Returns what is freed after the pass: a map of gradients is in any order.
type Program = fn(&Truth, bool) -> Result<Vec<Kept>>;
type Kept = (Tensor, GradStore);

/// Two equal branches, and networks of `models` that have results of the same kind and size.
const PROGRAMS: [(&str, Program); 6] = [
    ("two equal branches", equal_branches),
    ("branches", branches),
    ("shared", shared),
    ("attention", attention),
    ("gan", gan),
    ("lstm", lstm),
];

/// Prints how much of the backward pass is another call's in the other program; false if it is none, or if the logs differ.
pub(crate) fn check() -> Result<bool> {
    PROGRAMS.iter().try_fold(true, |is_good, (name, program)| Ok(compare(name, *program)? && is_good))
}

fn compare(name: &str, program: Program) -> Result<bool> {
    // What the first run sets up is there then.
    recorded(program, false)?;
    // candle's map of gradients may grow at other times in each run, even of one program.
    const MOST_TRIES: usize = 20;
    let mut tries = 1;
    loop {
        let [(one, of_one), (other, of_other)] = [recorded(program, false)?, recorded(program, true)?];
        let is_same = one == other && of_one.len() == of_other.len();
        if !is_same && tries < MOST_TRIES {
            tries += 1;
            continue;
        }
        let bytes = |(one, other): (&Owned, &Owned)| (one.0, if one == other { 0 } else { one.0 });
        let sums = of_one.iter().zip(&of_other).map(bytes);
        let (all, differing) = sums.fold((0, 0), |sums, bytes| (sums.0 + bytes.0, sums.1 + bytes.1));
        let (events, logs) = (one.len(), if is_same { "the same log" } else { "the logs DIFFER" });
        println!(
            "twins: {name}: {events} events, {logs}; of {all} bytes of the backward pass {differing} belong to another call"
        );
        return Ok(is_same && differing > 0);
    }
}

/// The log, and the blocks that the pass allocated.
fn recorded(program: Program, is_turned: bool) -> Result<(Vec<Event>, Vec<Owned>)> {
    let session = memtrace::builder().min_size(0).start().map_err(candle_core::Error::wrap)?;
    let truth = Truth::default();
    let kept = program(&truth, is_turned)?;
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

/// The results of some calls, which are made in this order.
fn in_order<const N: usize>(
    order: [usize; N],
    call: impl Fn(usize, &[Option<Tensor>; N]) -> Result<Tensor>,
) -> Result<[Tensor; N]> {
    let mut results = [const { None }; N];
    for at in order {
        results[at] = Some(call(at, &results)?);
    }
    Ok(results.map(|result| result.expect("the order has each call")))
}

fn passed(truth: &Truth, loss: Tensor) -> Result<Kept> {
    let gradients = truth.during(&loss, || loss.backward())?;
    Ok((loss, gradients))
}

/// Two branches of three layers, which are added.
fn equal_branches(truth: &Truth, is_turned: bool) -> Result<Vec<Kept>> {
    let mut vars = Variables::default();
    let weights = (0..6).map(|_| vars.add(&[64, 64])).collect::<Result<Vec<Tensor>>>()?;
    let (left, right, target) = (data(&[32, 64])?, data(&[32, 64])?, data(&[32, 64])?);
    let layer = |x: &Tensor, at: usize| -> Result<Tensor> { x.matmul(&weights[at])?.tanh() };
    let branch = |x: &Tensor, at: usize| layer(&layer(&layer(x, at)?, at + 1)?, at + 2);
    let order = if is_turned { [1, 0] } else { [0, 1] };
    let [one, other] = in_order(order, |at, _| branch([&left, &right][at], 3 * at))?;
    Ok(vec![passed(truth, candle_nn::loss::mse(&(one + other)?, &target)?)?])
}

/// The longest branch is computed first or last.
fn branches(truth: &Truth, is_turned: bool) -> Result<Vec<Kept>> {
    /// Of each layer the one before it.
    const BEFORE: [Option<usize>; 6] = [None, None, Some(1), None, Some(3), Some(4)];
    let mut vars = Variables::default();
    let weights = (0..6).map(|_| vars.add(&[64, 64])).collect::<Result<Vec<Tensor>>>()?;
    let last = vars.add(&[128, 32])?;
    let (input, target) = (data(&[32, 64])?, data(&[32, 32])?);
    let order = if is_turned { [0, 1, 2, 3, 4, 5] } else { [3, 4, 5, 1, 2, 0] };
    let [short, _, middle, _, _, long] = in_order(order, |at, results| {
        let x = BEFORE[at].and_then(|before| results[before].as_ref()).unwrap_or(&input);
        x.matmul(&weights[at])?.tanh()
    })?;
    let joined = Tensor::cat(&[&((short + long)? * &middle)?, &middle], 1)?;
    Ok(vec![passed(truth, candle_nn::loss::mse(&joined.matmul(&last)?, &target)?)?])
}

/// One of two equal products goes through `exp`.
fn shared(truth: &Truth, is_turned: bool) -> Result<Vec<Kept>> {
    let mut vars = Variables::default();
    let (words, weight) = (vars.add(&[100, 64])?, vars.add(&[64, 64])?);
    let (text, next) = (Tensor::arange(0u32, 32, &device())?, Tensor::arange(1u32, 33, &device())?);
    let turned = weight.t()?;
    let mut x = words.index_select(&text, 0)?;
    for _ in 0..3 {
        x = x.matmul(&weight)?.sin()?;
    }
    let order = if is_turned { [1, 0] } else { [0, 1] };
    let [plain, raised] = in_order(order, |_, _| x.matmul(&turned))?;
    let x = (plain + raised.exp()?)?;
    Ok(vec![passed(truth, candle_nn::loss::cross_entropy(&x.matmul(&words.t()?)?, &next)?)?])
}

/// Queries, keys and values are computed in another order.
fn attention(truth: &Truth, is_turned: bool) -> Result<Vec<Kept>> {
    const HEADS: usize = 4;
    let mut vars = Variables::default();
    let blocks =
        (0..2).map(|_| (0..4).map(|_| vars.add(&[64, 64])).collect::<Result<Vec<_>>>()).collect::<Result<Vec<_>>>()?;
    let gains = (0..2).map(|_| vars.add(&[64])).collect::<Result<Vec<_>>>()?;
    let (mut x, target) = (data(&[2, 16, 64])?, data(&[2, 16, 64])?);
    let order = if is_turned { [1, 0, 2] } else { [2, 1, 0] };
    for (weights, gain) in blocks.iter().zip(&gains) {
        let size = (x.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
        let normal = x.broadcast_div(&size)?.broadcast_mul(gain)?;
        let [q, k, v] = in_order(order, |at, _| {
            let all = normal.broadcast_matmul(&weights[at].t()?)?;
            all.reshape((2, 16, HEADS, 64 / HEADS))?.transpose(1, 2)?.contiguous()
        })?;
        let scores = (q.matmul(&k.t()?)? * 0.25)?;
        let mixed = candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&v)?;
        let mixed = mixed.transpose(1, 2)?.contiguous()?.reshape((2, 16, 64))?;
        x = (x + mixed.broadcast_matmul(&weights[3].t()?)?)?;
    }
    Ok(vec![passed(truth, candle_nn::loss::mse(&x, &target)?)?])
}

/// The judge sees the real data first or last.
fn gan(truth: &Truth, is_turned: bool) -> Result<Vec<Kept>> {
    let mut vars = Variables::default();
    let maker = (vars.add(&[16, 64])?, vars.add(&[64, 64])?);
    let judge = (vars.add(&[64, 64])?, vars.add(&[64, 1])?);
    let real = data(&[32, 64])?;
    let fake = data(&[32, 16])?.matmul(&maker.0)?.relu()?.matmul(&maker.1)?.tanh()?;
    let told = |x: &Tensor| x.matmul(&judge.0)?.relu()?.matmul(&judge.1);
    let seen = [fake.detach(), real];
    let order = if is_turned { [1, 0] } else { [0, 1] };
    let [of_fake, of_real] = in_order(order, |at, _| told(&seen[at]))?;
    let loss_of_judge = (of_fake.sqr()?.mean_all()? + (of_real - 1.)?.sqr()?.mean_all()?)?;
    let loss_of_maker = (told(&fake)? - 1.)?.sqr()?.mean_all()?;
    Ok(vec![passed(truth, loss_of_judge)?, passed(truth, loss_of_maker)?])
}

/// The gates are computed in another order.
fn lstm(truth: &Truth, is_turned: bool) -> Result<Vec<Kept>> {
    let mut vars = Variables::default();
    let (of_input, of_state) = (vars.add(&[32, 256])?, vars.add(&[64, 256])?);
    let (input, target) = (data(&[6, 16, 32])?, data(&[16, 64])?);
    let sigmoid = |x: &Tensor| -> Result<Tensor> { (x.neg()?.exp()? + 1.)?.recip() };
    let zeros = Tensor::zeros((16, 64), DType::F32, &device())?;
    let (mut state, mut cell) = (zeros.clone(), zeros);
    let order = if is_turned { [1, 2, 0] } else { [0, 1, 2] };
    for at in 0..6 {
        let gates = (input.i(at)?.matmul(&of_input)? + state.matmul(&of_state)?)?;
        let gate = |at: usize| gates.narrow(1, at * 64, 64);
        let [kept, added, shown] = in_order(order, |at, _| sigmoid(&gate(at)?))?;
        cell = ((kept * &cell)? + (added * gate(3)?.tanh()?)?)?;
        state = (shown * cell.tanh()?)?;
    }
    Ok(vec![passed(truth, candle_nn::loss::mse(&state, &target)?)?])
}
