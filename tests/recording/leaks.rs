//! What `cargo memtrace check --no-leak` says of a recording's scopes is what `NoLeak` says of the code in them.

use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::mem::forget;

use candle_core::{DType, Device, Tensor};
use candle_nn::{AdamW, Linear, Module, Optimizer, VarBuilder, VarMap};
use memtrace::{DeviceView, NoLeak, scope};
use memtrace_core::analysis::runs::{LeakVerdict, left_by_scopes};

use crate::support::{alone, cpu};

/// Code that runs again and again, with what it keeps.
type RepeatedCode = Box<dyn FnMut()>;
type RepeatedProgram = (&'static str, fn() -> RepeatedCode);

fn block(size: usize) -> Vec<u8> {
    black_box(vec![1; size])
}

/// Calls the code with the number of the run.
fn numbered(mut code: impl FnMut(usize) + 'static) -> RepeatedCode {
    let mut number = 0;
    Box::new(move || {
        code(number);
        number += 1;
    })
}

fn model() -> (VarMap, Linear, AdamW) {
    let map = VarMap::new();
    let linear = candle_nn::linear(128, 32, VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu)).unwrap();
    let optimizer = AdamW::new_lr(map.all_vars(), 0.01).unwrap();
    (map, linear, optimizer)
}

fn trained(linear: &Linear, optimizer: &mut AdamW) -> Tensor {
    let input = Tensor::ones((16, 128), DType::F32, &Device::Cpu).unwrap();
    let loss = linear.forward(&input).unwrap().sqr().unwrap().mean_all().unwrap();
    optimizer.backward_step(&loss).unwrap();
    loss
}

const CLEAN: [RepeatedProgram; 6] = [
    ("a temporary", || Box::new(|| drop(block(9000)))),
    ("a cache that fills up", || {
        let mut cache = BTreeMap::new();
        numbered(move |run| _ = cache.entry(run * 7 % 5).or_insert_with(|| block(4000)).len())
    }),
    ("the newest eight", || {
        let mut newest = VecDeque::with_capacity(16);
        numbered(move |run| {
            newest.push_back(block(3000 + run * 37 % 11));
            if newest.len() > 8 {
                newest.pop_front();
            }
        })
    }),
    ("what the next run replaces", || {
        let mut last = Vec::new();
        numbered(move |run| last = block(4000 + run * 13 % 7 * 1000 + last.len() % 2))
    }),
    ("a container that is cleared", || {
        let mut many = Vec::new();
        Box::new(move || {
            many.extend((0..10).map(|_| block(2000)));
            many.clear();
        })
    }),
    ("training", || {
        let (map, linear, mut optimizer) = model();
        Box::new(move || {
            black_box(&map);
            drop(trained(&linear, &mut optimizer));
        })
    }),
];

const LEAKING: [RepeatedProgram; 5] = [
    ("a block with each run", || Box::new(|| forget(block(2000)))),
    ("a block with every third", || {
        numbered(|run| {
            if run % 3 == 0 {
                forget(block(2000))
            }
        })
    }),
    ("a list of blocks", || {
        let mut kept = Vec::new();
        Box::new(move || kept.push(block(4000)))
    }),
    ("a container that doubles", || {
        let mut kept: Vec<[u64; 64]> = Vec::new();
        numbered(move |run| kept.push([run as u64; 64]))
    }),
    ("losses with their graphs", || {
        let ((map, linear, mut optimizer), mut losses) = (model(), Vec::new());
        Box::new(move || {
            black_box(&map);
            losses.push(trained(&linear, &mut optimizer));
        })
    }),
];

/// The verdict on a recording of forty runs in a scope.
fn recorded(mut program: RepeatedCode) -> LeakVerdict {
    let session = memtrace::builder().min_size(0).start().unwrap();
    for _ in 0..40 {
        scope("step", &mut program);
    }
    let snapshot = session.snapshot();
    drop(program);
    left_by_scopes(&DeviceView::of(&snapshot, cpu(&snapshot)))
}

#[test]
fn the_verdict_on_scopes_is_the_assertions_on_clean_and_on_leaking_programs() {
    let _alone = alone();
    for (programs, leaks) in [(&CLEAN[..], false), (&LEAKING[..], true)] {
        for (name, program) in programs {
            let asserted = NoLeak::new().run(program());
            assert_eq!(asserted.is_err(), leaks, "{name}: {asserted:?}");
            let verdict = recorded(program());
            match verdict {
                LeakVerdict::Leaks(_) => assert!(leaks, "{name}: {verdict:?}"),
                LeakVerdict::Nothing(_) => assert!(!leaks, "{name}: {verdict:?}"),
                LeakVerdict::Undecided(_) => panic!("{name}: {verdict:?}"),
            }
        }
    }
}
