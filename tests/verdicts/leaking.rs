//! Programs that leak in each run: a block, or eight bytes in a container.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hint::black_box;
use std::mem::forget;
use std::sync::mpsc;

use crate::{fails, runtime};
use memtrace::{NoGrowth, NoLeak};

/// Defines a test of a program whose leak must be found.
macro_rules! keeps_something {
    ($($name:ident: $program:expr;)*) => {$(
        #[test]
        fn $name() {
            fails(|| ($program)(NoLeak::new()));
        }
    )*};
}

fn block() -> Vec<u8> {
    black_box(vec![0u8; 1 << 10])
}

/// Calls `f` at the bottom of a recursion.
fn at_depth(depth: usize, f: &dyn Fn()) {
    match depth {
        0 => f(),
        depth => at_depth(depth - 1, f),
    }
    black_box(depth);
}

keeps_something! {
    a_block: |no_leak: NoLeak| no_leak.run(|| forget(block()));
    a_byte: |no_leak: NoLeak| no_leak.run(|| forget(black_box(Box::new(1u8))));
    every_third_run: |no_leak: NoLeak| {
        let mut run = 0;
        no_leak.run(|| {
            run += 1;
            if run % 3 == 0 {
                forget(block());
            }
        })
    };
    from_another_depth_each_time: |no_leak: NoLeak| {
        let mut run = 0;
        no_leak.run(|| {
            run += 1;
            at_depth(run % 200, &|| forget(block()));
        })
    };
    from_another_depth_beside_noise: |no_leak: NoLeak| {
        let (mut run, mut noise, mut newest) = (0, 7u64, VecDeque::new());
        no_leak.run(|| {
            run += 1;
            at_depth(run % 200, &|| forget(block()));
            noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            newest.push_back(vec![0u8; (noise >> 46) as usize]);
            if newest.len() > 16 {
                newest.pop_front();
            }
        })
    };
    on_two_lines_in_turn: |no_leak: NoLeak| {
        let mut run = 0;
        no_leak.run(|| {
            run += 1;
            if run % 2 == 0 { forget(block()) } else { forget(block().into_boxed_slice()) }
        })
    };
    in_cells_of_objects: |no_leak: NoLeak| {
        let mut all = Vec::with_capacity(1000);
        no_leak.run(|| {
            let cell = std::sync::OnceLock::new();
            cell.get_or_init(block);
            all.push(cell);
        })
    };
    pools_of_threads: |no_leak: NoLeak| {
        let mut all = Vec::with_capacity(1000);
        let outcome = no_leak.run(|| all.push(rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap()));
        drop(all);
        outcome
    };
    arrays_in_a_vector: |no_leak: NoLeak| {
        let mut all: Vec<[u8; 65536]> = Vec::new();
        no_leak.run(|| all.push(black_box([0; 65536])))
    };
    losses: |no_leak: NoLeak| {
        let mut losses: Vec<f64> = Vec::new();
        no_leak.run(|| losses.push(black_box(1.0)))
    };
    losses_in_twenty_runs: |no_leak: NoLeak| {
        let mut losses: Vec<f64> = Vec::new();
        no_leak.runs(20).run(|| losses.push(black_box(1.0)))
    };
    lines_of_a_log: |no_leak: NoLeak| {
        let mut log = String::new();
        no_leak.run(|| log.push_str("a line of a log that grows on and on\n"))
    };
    values_in_a_map: |no_leak: NoLeak| {
        let (mut map, mut key) = (HashMap::new(), 0u64);
        no_leak.run(|| {
            key += 1;
            map.insert(key, [0u8; 1024])
        })
    };
    keys_in_a_set: |no_leak: NoLeak| {
        let (mut set, mut key) = (HashSet::new(), 0u64);
        no_leak.run(|| {
            key += 1;
            set.insert(key)
        })
    };
    a_queue_that_is_not_read: |no_leak: NoLeak| {
        let mut queue = VecDeque::new();
        no_leak.run(|| queue.push_back(black_box(1u64)))
    };
    a_channel_that_is_not_read: |no_leak: NoLeak| {
        let (to, _from) = mpsc::channel();
        // The channel allocates a block for every 31 messages.
        no_leak.runs(70).run(|| to.send(black_box(1u64)).unwrap())
    };
    blocks_in_a_vector: |no_leak: NoLeak| {
        let mut all = Vec::new();
        no_leak.run(|| all.push(block()))
    };
    a_thread: |no_leak: NoLeak| no_leak.run(|| std::thread::spawn(|| forget(block())).join().unwrap());
    a_scoped_thread: |no_leak: NoLeak| no_leak.run(|| std::thread::scope(|threads| drop(threads.spawn(|| forget(block())))));
    a_thread_of_a_thread: |no_leak: NoLeak| no_leak.run(|| {
        std::thread::spawn(|| std::thread::spawn(|| forget(block())).join().unwrap()).join().unwrap();
    });
    an_actor: |no_leak: NoLeak| {
        let (to, work) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let actor = std::thread::spawn(move || work.iter().for_each(|work| work()));
        let outcome = no_leak.run(|| {
            let (done, wait) = mpsc::channel();
            to.send(Box::new(move || {
                forget(block());
                done.send(()).unwrap();
            })).unwrap();
            wait.recv().unwrap();
        });
        drop(to);
        actor.join().unwrap();
        outcome
    };
    both_sides_of_a_join: |no_leak: NoLeak| no_leak.run(|| rayon::join(|| forget(block()), || forget(block())));
    a_scope_of_a_pool: |no_leak: NoLeak| no_leak.run(|| rayon::scope(|scope| scope.spawn(|_| forget(block()))));
    an_iterator_in_parallel: |no_leak: NoLeak| {
        use rayon::prelude::*;
        no_leak.run(|| (0..8).into_par_iter().for_each(|_| forget(block())))
    };
    a_blocking_task: |no_leak: NoLeak| {
        let runtime = runtime();
        no_leak.run(|| runtime.block_on(async { tokio::task::spawn_blocking(|| forget(block())).await.unwrap() }))
    };
    a_blocking_task_on_a_thread_that_was_there: |no_leak: NoLeak| {
        let runtime = runtime();
        runtime.block_on(async { tokio::task::spawn_blocking(|| ()).await.unwrap() });
        no_leak.run(|| runtime.block_on(async { tokio::task::spawn_blocking(|| forget(block())).await.unwrap() }))
    };
    a_task: |no_leak: NoLeak| {
        let runtime = runtime();
        no_leak.run(|| runtime.block_on(async { tokio::spawn(async { forget(block()) }).await.unwrap() }))
    };
    a_task_that_moves: |no_leak: NoLeak| {
        let runtime = runtime();
        no_leak.run(|| runtime.block_on(async {
            tokio::spawn(async {
                for _ in 0..5 {
                    tokio::task::yield_now().await;
                }
                forget(block());
            }).await.unwrap();
        }))
    };
}

#[test]
fn extra_runs_end_when_64_mib_have_stayed() {
    let (mut kept, mut runs) = (Vec::with_capacity(1000), 0);
    let failure = NoLeak::new().run(|| {
        runs += 1;
        kept.push(black_box(vec![0u8; 512 << 10]));
    });
    assert!((128..=132).contains(&runs), "{runs} runs");
    crate::removed(&failure.unwrap_err());
}

#[test]
fn containers_that_grow_on_and_on() {
    fails(|| {
        let mut arrays: Vec<[u8; 4096]> = Vec::new();
        NoGrowth::new().iterations(20).run(|| arrays.push(black_box([0; 4096])))
    });
    fails(|| {
        let mut losses: Vec<f64> = Vec::new();
        NoGrowth::new().iterations(20).run(|| losses.push(black_box(1.0)))
    });
    fails(|| {
        let (mut map, mut key) = (HashMap::new(), 0u64);
        NoGrowth::new().iterations(100).run(|| {
            key += 1;
            map.insert(key, [0u8; 1024])
        })
    });
    fails(|| {
        let mut blocks = Vec::new();
        NoGrowth::new().iterations(40).run(|| blocks.push(vec![0u8; 10]))
    });
}

#[test]
fn a_scope_of_a_pool_with_blocks_on_both_sides_of_the_stack() {
    // A block of this size has its own pages, the first one at the highest free address.
    const LARGE: usize = 64 << 20;
    fails(|| {
        let above = black_box(vec![0u8; LARGE]);
        let (may_go_on, waits) = mpsc::channel();
        let thread = std::thread::Builder::new().stack_size(LARGE).spawn(move || {
            waits.recv().unwrap();
            NoLeak::new().run(|| {
                black_box([LARGE; 2].map(|size| vec![0u8; size]));
                rayon::scope(|scope| scope.spawn(|_| forget(block())));
            })
        });
        drop(above);
        may_go_on.send(()).unwrap();
        thread.unwrap().join().unwrap()
    });
}

/// Adds a number to one of `N` vectors, each time to another.
fn in_turn<const N: usize>() -> impl FnMut() {
    let (mut all, mut run) = ([const { Vec::<u64>::new() }; N], 0);
    move || {
        all[run % N].push(1);
        run += 1;
    }
}

#[test]
fn containers_that_are_filled_in_turn() {
    fails(|| NoGrowth::new().iterations(100).run(in_turn::<3>()));
    fails(|| NoGrowth::new().iterations(1000).run(in_turn::<10>()));
    fails(|| NoLeak::new().runs(100).run(in_turn::<3>()));
    fails(|| NoLeak::new().runs(300).run(in_turn::<5>()));
    fails(|| {
        let (mut series, mut run) = (HashMap::<usize, Vec<f64>>::new(), 0);
        NoLeak::new().runs(100).run(|| {
            run += 1;
            ["loss", "rate", "norm", "time"]
                .iter()
                .take(1 + run % 4)
                .for_each(|name| series.entry(name.len() + run % 2).or_default().push(1.0));
        })
    });
    fails(|| {
        let (mut logs, mut noise) = ([const { String::new() }; 4], 7u64);
        NoGrowth::new().iterations(200).run(|| {
            noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            logs[(noise >> 62) as usize].push_str("a line of one of the logs\n");
        })
    });
    fails(|| {
        let (mut queues, mut run) = ([const { VecDeque::<[u8; 100]>::new() }; 6], 0);
        NoGrowth::new().iterations(500).run(|| {
            run += 1;
            queues[run % 6].push_back([0; 100]);
        })
    });
}
