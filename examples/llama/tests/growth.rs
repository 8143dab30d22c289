//! Programs whose memory accumulates, and programs whose memory does not. They were written from the definition in
//! docs/findings.md before the finding was run on them. Each has dropped everything when the snapshot is taken.
//!
//! `cargo test -p llama-example --test growth -- --nocapture`

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::mpsc;

use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer};
use memtrace::{DeviceView, scope};

mod held_out;
mod passes;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

const CPU: &Device = &Device::Cpu;

type Program = (&'static str, fn() -> Result<()>);

/// The program's name is also the mark `// <- NAME` at the line that the finding must name.
const ACCUMULATE: [Program; 10] = [
    ("hidden states", hidden_states),
    ("a sum of losses", sum_of_losses),
    ("a carried state", carried_state),
    ("failed requests", failed_requests),
    ("a cache without a bound", unbounded_cache),
    ("a channel that nobody reads", unread_channel),
    ("visited states", visited_states),
    ("outputs of all epochs", outputs_of_all_epochs),
    ("prompts of growing lengths", growing_prompts),
    ("work after the loop", work_after_the_loop),
];

const DO_NOT: [Program; 14] = [
    ("a cache that is joined", joined_cache),
    ("a cache with room for all", cache_with_room),
    ("a cache of few keys", few_keys),
    ("the newest sixteen", newest_sixteen),
    ("outputs of an epoch", outputs_of_an_epoch),
    ("a log and a list of losses", log_and_losses),
    ("weights, then requests", weights_then_requests),
    ("micro-batches", micro_batches),
    ("training", training),
    ("two buffers", two_buffers),
    ("the best checkpoint", best_checkpoint),
    ("a cache that replaces at random", random_replacement),
    ("the best sixteen", best_sixteen),
    ("threads with scratch memory", scratch_memory),
];

fn layer(width: usize) -> Result<Tensor> {
    Tensor::randn(0f32, 0.05, (width, width), CPU)
}

fn batch(rows: usize, width: usize) -> Result<Tensor> {
    Tensor::randn(0f32, 1., (rows, width), CPU)
}

/// A random generator that is good enough to choose keys.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

fn hidden_states() -> Result<()> {
    let (a, b) = (layer(256)?, layer(256)?);
    let mut trace = Vec::new();
    for _ in 0..30 {
        let hidden = batch(128, 256)?.matmul(&a)?.tanh()?; // <- hidden states
        trace.push(hidden.clone());
        hidden.matmul(&b)?.sum_all()?.to_scalar::<f32>()?;
    }
    Ok(())
}

fn sum_of_losses() -> Result<()> {
    let weight = Var::randn(0f32, 0.1, (256, 256), CPU)?;
    let mut sum = Tensor::zeros((), DType::F32, CPU)?;
    for _ in 0..20 {
        let input = batch(128, 256)?;
        let loss = input.matmul(&weight)?.relu()?.sqr()?.mean_all()?; // <- a sum of losses
        let gradients = loss.backward()?;
        let gradient = gradients.get(&weight).expect("it has one").detach();
        weight.set(&(weight.as_detached_tensor() - (gradient * 0.01)?)?)?;
        sum = (sum + loss)?;
    }
    sum.to_scalar::<f32>().map(drop)
}

fn carried_state() -> Result<()> {
    let weight = Var::randn(0f32, 0.1, (256, 256), CPU)?;
    let mut state = Tensor::zeros((128, 256), DType::F32, CPU)?;
    for _ in 0..25 {
        state = scope("chunk", || (state.matmul(&weight)? + batch(128, 256)?)?.tanh())?; // <- a carried state
    }
    Ok(())
}

fn failed_requests() -> Result<()> {
    let (answers, answered) = mpsc::channel();
    let running = std::sync::Mutex::new(HashMap::new());
    std::thread::scope(|threads| {
        for worker in 0..3 {
            let (answers, running) = (answers.clone(), &running);
            threads.spawn(move || {
                for request in (worker..360).step_by(3) {
                    let input = vec![request as f32; 32 << 10]; // <- failed requests
                    let id = request;
                    let sum: f32 = input.iter().sum();
                    running.lock().expect("no panic").insert(id, input);
                    if request % 8 != 5 {
                        running.lock().expect("no panic").remove(&id);
                        answers.send(sum).expect("the receiver lives");
                    }
                    std::thread::yield_now();
                }
            });
        }
    });
    drop(answers);
    answered.iter().for_each(drop);
    Ok(())
}

fn unbounded_cache() -> Result<()> {
    let mut cache = HashMap::new();
    for request in 0..60usize {
        let session = format!("session {request}");
        let features = cache.entry(session).or_insert_with(|| vec![request as f32; 40_000]); // <- a cache without a bound
        let copy: Vec<f32> = features.iter().map(|feature| feature * 2.).collect();
        std::hint::black_box(copy);
    }
    Ok(())
}

fn unread_channel() -> Result<()> {
    let weight = layer(256)?;
    let (to, _from) = mpsc::channel();
    for step in 0..40 {
        let metric = scope(format!("step {step}"), || batch(64, 256)?.matmul(&weight))?; // <- a channel that nobody reads
        to.send(metric).expect("the receiver lives");
    }
    Ok(())
}

fn visited_states() -> Result<()> {
    fn search(depth: usize, visited: &mut Vec<Tensor>) -> Result<f32> {
        let state = Tensor::full(depth as f32, (64, 256), CPU)?; // <- visited states
        let value = state.sum_all()?.to_scalar::<f32>()?;
        visited.push(state);
        if depth == 0 {
            return Ok(value);
        }
        Ok(value + search(depth - 1, visited)? + search(depth - 1, visited)?)
    }
    search(5, &mut Vec::new()).map(drop)
}

fn outputs_of_all_epochs() -> Result<()> {
    let weight = layer(256)?;
    let mut outputs = Vec::new();
    for _epoch in 0..4 {
        for _batch in 0..10 {
            outputs.push(batch(64, 256)?.matmul(&weight)?); // <- outputs of all epochs
        }
    }
    Ok(())
}

fn growing_prompts() -> Result<()> {
    let mut prompts = Vec::new();
    for length in 0..50usize {
        let prompt = Tensor::zeros((100 + 10 * length, 64), DType::F32, CPU)?; // <- prompts of growing lengths
        (&prompt * 2.)?.sum_all()?.to_scalar::<f32>()?;
        prompts.push(prompt);
    }
    Ok(())
}

fn work_after_the_loop() -> Result<()> {
    let weight = layer(256)?;
    let mut kept = Vec::new();
    for _ in 0..40 {
        kept.push(batch(64, 256)?.matmul(&weight)?); // <- work after the loop
    }
    for _ in 0..6 {
        batch(64, 256)?.matmul(&weight)?.sum_all()?.to_scalar::<f32>()?;
    }
    Ok(())
}

fn joined_cache() -> Result<()> {
    let weight = layer(512)?;
    let mut cache: Option<Tensor> = None;
    for _token in 0..60 {
        let key = batch(16, 512)?.matmul(&weight)?;
        cache = Some(match cache {
            None => key,
            Some(before) => Tensor::cat(&[&before, &key], 0)?,
        });
    }
    Ok(())
}

fn cache_with_room() -> Result<()> {
    let weight = layer(256)?;
    let cache = Tensor::zeros((64 * 16, 256), DType::F32, CPU)?;
    for token in 0..64 {
        let key = batch(16, 256)?.matmul(&weight)?;
        cache.slice_set(&key, 0, 16 * token)?;
    }
    Ok(())
}

fn few_keys() -> Result<()> {
    let (mut cache, mut state) = (HashMap::new(), 7);
    for _request in 0..300 {
        let key = random(&mut state) % 12;
        let mask = match cache.get(&key) {
            Some(mask) => Tensor::clone(mask),
            None => Tensor::ones((64 + key, 256), DType::F32, CPU)?,
        };
        (&mask * 2.)?.sum_all()?.to_scalar::<f32>()?;
        cache.insert(key, mask);
    }
    Ok(())
}

fn newest_sixteen() -> Result<()> {
    let mut newest = VecDeque::new();
    for _ in 0..200 {
        newest.push_back(batch(64, 256)?);
        if newest.len() > 16 {
            newest.pop_front();
        }
    }
    Ok(())
}

fn outputs_of_an_epoch() -> Result<()> {
    let weight = layer(256)?;
    for _epoch in 0..4 {
        let mut outputs = Vec::new();
        for _batch in 0..20 {
            outputs.push(batch(64, 256)?.matmul(&weight)?);
        }
        Tensor::cat(&outputs, 0)?.argmax(D::Minus1)?;
    }
    Ok(())
}

fn log_and_losses() -> Result<()> {
    let (mut log, mut losses) = (String::new(), Vec::new());
    for step in 0..20_000 {
        log.push_str(&format!("step {step}: a line of the log that grows on and on\n"));
        losses.push(f64::from(step));
        if step % 100 == 0 {
            batch(64, 256)?.sum_all()?.to_scalar::<f32>()?;
        }
    }
    Ok(())
}

fn weights_then_requests() -> Result<()> {
    let mut weights = Vec::new();
    for layer in 0..24 {
        let file: Vec<f32> = (0..256 * 256).map(|at| (at * layer) as f32 * 1e-9).collect();
        weights.push(Tensor::from_vec(file, (256, 256), CPU)?);
    }
    for _request in 0..20 {
        let mut x = batch(32, 256)?;
        for weight in &weights {
            x = x.matmul(weight)?.tanh()?;
        }
    }
    Ok(())
}

fn micro_batches() -> Result<()> {
    let weight = Var::randn(0f32, 0.1, (256, 256), CPU)?;
    for _step in 0..10 {
        let mut sum = Tensor::zeros((), DType::F32, CPU)?;
        for _micro in 0..4 {
            sum = (sum + batch(64, 256)?.matmul(&weight)?.relu()?.mean_all()?)?;
        }
        let gradients = sum.backward()?;
        let gradient = gradients.get(&weight).expect("it has one").detach();
        weight.set(&(weight.as_detached_tensor() - (gradient * 0.01)?)?)?;
    }
    Ok(())
}

fn training() -> Result<()> {
    let weights = [Var::randn(0f32, 0.1, (256, 256), CPU)?, Var::randn(0f32, 0.1, (256, 256), CPU)?];
    let mut optimizer = AdamW::new_lr(weights.to_vec(), 1e-3)?;
    for _step in 0..16 {
        let loss = batch(64, 256)?.matmul(&weights[0])?.relu()?.matmul(&weights[1])?.sqr()?.mean_all()?;
        optimizer.backward_step(&loss)?;
    }
    Ok(())
}

fn two_buffers() -> Result<()> {
    let weight = layer(256)?;
    let (to, from) = mpsc::sync_channel(2);
    let loader = std::thread::spawn(move || -> Result<()> {
        for _ in 0..60 {
            to.send(batch(64, 256)?).expect("the receiver lives");
        }
        Ok(())
    });
    for loaded in from {
        loaded.matmul(&weight)?.sum_all()?.to_scalar::<f32>()?;
    }
    loader.join().expect("no panic")
}

fn best_checkpoint() -> Result<()> {
    let (mut weight, mut best) = (layer(256)?, (f32::MAX, None));
    for _ in 0..40 {
        weight = ((&weight * 0.9)? + (layer(256)? * 0.1)?)?;
        let loss = weight.sqr()?.mean_all()?.to_scalar::<f32>()?;
        if loss < best.0 {
            best = (loss, Some(weight.copy()?));
        }
    }
    Ok(())
}

fn random_replacement() -> Result<()> {
    let (mut cache, mut state) = (Vec::new(), 3);
    for _request in 0..300 {
        let features = batch(64, 256)?;
        if cache.len() < 24 {
            cache.push(features);
        } else {
            let at = random(&mut state) % 24;
            cache[at] = features;
        }
    }
    Ok(())
}

fn best_sixteen() -> Result<()> {
    let (mut best, mut kept, mut state) = (BinaryHeap::new(), HashMap::new(), 11);
    for request in 0..200usize {
        let score = random(&mut state) % 1000;
        kept.insert(request, batch(64, 256)?);
        best.push((std::cmp::Reverse(score), request));
        if best.len() > 16
            && let Some((_, worst)) = best.pop()
        {
            kept.remove(&worst);
        }
    }
    Ok(())
}

fn scratch_memory() -> Result<()> {
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let mut scratch = Vec::new();
                for request in 0..50usize {
                    scratch.clear();
                    scratch.resize((64 << 10) + 100 * (request % 7), 0f32);
                    std::hint::black_box(&scratch);
                }
            });
        }
    });
    Ok(())
}

/// The text of the finding on a program, and the finding's line.
fn growth<E: std::fmt::Debug>(
    name: &str,
    program: impl FnOnce() -> std::result::Result<(), E>,
) -> Option<(String, String)> {
    let session = memtrace::start().expect("one at a time");
    program().expect(name);
    let snapshot = session.snapshot();
    let device = snapshot.device(memtrace::Device::Cpu).expect("it allocates");
    let found = memtrace::report::findings(&DeviceView::of(&snapshot, device));
    let all: Vec<_> = found.iter().map(|finding| (finding.kind.word(), &finding.what, &finding.line)).collect();
    println!("{name}: {all:?}");
    let growth = found.into_iter().find(|finding| finding.kind.word() == "growth")?;
    Some((growth.what, growth.line.unwrap_or_default()))
}

/// The place of the line that ends in `// <- MARK`.
fn marked(file: &str, source: &str, mark: &str) -> Option<String> {
    let at = source.lines().position(|line| line.ends_with(&format!("// <- {mark}")))?;
    Some(format!("{file}:{} ", at + 1))
}

#[test]
fn what_accumulates_is_found_at_its_line_and_nothing_else_is() {
    let mut wrong = Vec::new();
    let mut check = |name, expected: Option<String>, found: Option<(String, String)>| {
        let right = match (&expected, &found) {
            (Some(place), Some((_, line))) => line.contains(place),
            (expected, found) => expected.is_none() && found.is_none(),
        };
        if !right {
            wrong.push(format!("{name}: expected {expected:?}, found {found:?}"));
        }
    };
    for (name, program) in ACCUMULATE.iter().chain(&DO_NOT) {
        check(name, marked("growth.rs", include_str!("growth.rs"), name), growth(name, program));
    }
    for (name, program) in passes::ACCUMULATE.iter().chain(&passes::DO_NOT) {
        check(name, marked("passes/mod.rs", include_str!("passes/mod.rs"), name), growth(name, program));
    }
    for (name, source, program) in held_out::PROGRAMS {
        let expected = marked(&format!("{name}.rs"), source, "grows");
        assert_eq!(expected.is_some(), name.starts_with("g_"), "{name}");
        check(name, expected, growth(name, program));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
