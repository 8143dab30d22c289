//! Programs without a leak.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hint::black_box;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, RwLock, mpsc};

use crate::{passes, runtime};
use memtrace::{NoGrowth, NoLeak};

/// Defines a test of a program that must pass.
macro_rules! keeps_nothing {
    ($($name:ident: $program:expr;)*) => {$(
        #[test]
        fn $name() {
            passes(|| ($program)(NoLeak::new()));
        }
    )*};
}

static LAZY: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; 1000]);
static POOL: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
static ONCE: OnceLock<HashMap<u32, String>> = OnceLock::new();

thread_local! {
    static GROWS_ONCE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

keeps_nothing! {
    a_lazy_static: |no_leak: NoLeak| no_leak.run(|| black_box(LAZY.len()));
    a_table_made_once: |no_leak: NoLeak| no_leak.run(|| {
        ONCE.get_or_init(|| (0..100).map(|n| (n, n.to_string())).collect()).len()
    });
    a_thread_local_that_grows_once: |no_leak: NoLeak| no_leak.run(|| GROWS_ONCE.with(|t| t.borrow_mut().resize(5000, 0)));
    scratch_memory_by_size: |no_leak: NoLeak| {
        let mut run = 0;
        no_leak.run(|| {
            run += 1;
            SCRATCH.with(|scratch| {
                let mut scratch = scratch.borrow_mut();
                scratch.clear();
                scratch.resize(1000 + run * 37 % 500, 0.0);
            });
        })
    };
    a_pool_of_objects: |no_leak: NoLeak| no_leak.run(|| {
        let block = POOL.lock().unwrap().pop().unwrap_or_else(|| vec![0; 100]);
        POOL.lock().unwrap().push(block);
    });
    the_newest_four: |no_leak: NoLeak| {
        let mut newest = VecDeque::new();
        no_leak.run(|| {
            newest.push_back(vec![0u8; 100]);
            if newest.len() > 4 {
                newest.pop_front();
            }
        })
    };
    the_newest_sixty_four: |no_leak: NoLeak| {
        let mut newest = VecDeque::new();
        no_leak.run(|| {
            newest.push_back(vec![0u8; 100]);
            if newest.len() > 64 {
                newest.pop_front();
            }
        })
    };
    a_cache_by_key: |no_leak: NoLeak| {
        let (mut cache, mut run) = (HashMap::new(), 0u64);
        no_leak.run(|| {
            run += 1;
            cache.entry(run * 7919 % 50).or_insert_with(|| vec![0u8; 300]).len()
        })
    };
    a_shared_cache: |no_leak: NoLeak| {
        let cache: Arc<RwLock<HashMap<usize, Arc<str>>>> = Arc::default();
        let mut run = 0;
        no_leak.run(|| {
            run += 1;
            let name: Arc<str> = format!("name {}", run % 9).into();
            cache.write().unwrap().insert(run % 9, name);
        })
    };
    a_map_of_one_size: |no_leak: NoLeak| {
        let (mut map, mut key) = (HashMap::new(), 0);
        no_leak.runs(30).run(|| for _ in 0..10 {
            key += 1;
            map.insert(key, vec![0u8; 10]);
            map.remove(&(key - 10));
        })
    };
    a_tree_of_one_size: |no_leak: NoLeak| {
        let (mut map, mut key) = (BTreeMap::new(), 0);
        no_leak.runs(30).run(|| for _ in 0..10 {
            key += 1;
            map.insert(key, 1u64);
            if key > 40 {
                map.remove(&(key - 40));
            }
        })
    };
    a_channel_that_stays_open: |no_leak: NoLeak| {
        let (to, from) = mpsc::channel();
        no_leak.runs(40).run(|| {
            (0..17).for_each(|n| to.send(n).unwrap());
            while from.try_recv().is_ok() {}
        })
    };
    a_channel_message_by_message: |no_leak: NoLeak| {
        let (to, from) = mpsc::channel();
        no_leak.run(|| for n in 0..31 {
            to.send(n).unwrap();
            from.recv().unwrap();
        })
    };
    formatted_text: |no_leak: NoLeak| no_leak.run(|| black_box(format!("{:?}", vec![1, 2])));
    text_that_is_printed: |no_leak: NoLeak| no_leak.run(|| println!("a line of some length, which the harness keeps, and which is long"));
    threads_that_are_joined: |no_leak: NoLeak| no_leak.run(|| {
        let all: Vec<_> = (0..4).map(|_| std::thread::spawn(|| black_box(vec![0u8; 1000]).len())).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    a_scoped_thread: |no_leak: NoLeak| no_leak.run(|| {
        std::thread::scope(|threads| drop(threads.spawn(|| black_box(vec![0u8; 1000]).len())));
    });
    a_thread_that_frees_later: |no_leak: NoLeak| no_leak.run(|| {
        let block = vec![0u8; 1000];
        let (to, from) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            let _ = from.recv();
            drop(block);
        });
        drop(to);
    });
    a_thread_with_a_thread_local: |no_leak: NoLeak| no_leak.run(|| {
        std::thread::scope(|threads| drop(threads.spawn(|| GROWS_ONCE.with(|t| t.borrow_mut().resize(100, 0)))));
    });
    an_actor: |no_leak: NoLeak| {
        let (to, work) = mpsc::channel::<(Vec<u8>, mpsc::Sender<Vec<u8>>)>();
        let actor = std::thread::spawn(move || work.iter().for_each(|(block, answer)| answer.send(block.repeat(2)).unwrap()));
        let outcome = no_leak.run(|| {
            let (answer, answered) = mpsc::channel();
            to.send((vec![0u8; 500], answer)).unwrap();
            answered.recv().unwrap().len()
        });
        drop(to);
        actor.join().unwrap();
        outcome
    };
    work_in_parallel: |no_leak: NoLeak| {
        use rayon::prelude::*;
        no_leak.run(|| (0..1000u32).into_par_iter().map(|x| vec![x; 10].len()).sum::<usize>())
    };
    a_scope_of_ten: |no_leak: NoLeak| no_leak.run(|| {
        rayon::scope(|scope| (0..10).for_each(|_| scope.spawn(|_| drop(black_box(vec![0u8; 100])))));
    });
    work_that_nobody_waits_for: |no_leak: NoLeak| no_leak.runs(30).run(|| {
        (0..20).for_each(|_| rayon::spawn(|| drop(black_box(vec![0u8; 10]))));
        rayon::join(|| (), || ());
    });
    a_pool_of_its_own: |no_leak: NoLeak| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        no_leak.run(|| pool.install(|| rayon::join(|| vec![0u8; 100].len(), || vec![0u8; 100].len())))
    };
    one_blocking_task: |no_leak: NoLeak| {
        let runtime = runtime();
        no_leak.run(|| runtime.block_on(async { tokio::task::spawn_blocking(|| black_box(vec![0u8; 1 << 20]).len()).await.unwrap() }))
    };
    three_blocking_tasks_at_once: |no_leak: NoLeak| {
        let runtime = runtime();
        no_leak.run(|| runtime.block_on(async {
            let all: Vec<_> = (0..3).map(|_| tokio::task::spawn_blocking(|| black_box(vec![0u8; 1000]).len())).collect();
            for task in all {
                task.await.unwrap();
            }
        }))
    };
    a_worker_that_blocks: |no_leak: NoLeak| {
        let runtime = runtime();
        no_leak.run(|| runtime.block_on(async {
            tokio::spawn(async { tokio::task::block_in_place(|| black_box(vec![0u8; 10]).len()) }).await.unwrap()
        }))
    };
    fifty_tasks: |no_leak: NoLeak| {
        let runtime = runtime();
        no_leak.run(|| runtime.block_on(async {
            for _ in 0..50 {
                tokio::spawn(async {
                    tokio::task::yield_now().await;
                    black_box(vec![0u8; 100]);
                }).await.unwrap();
            }
        }))
    };
    twenty_tasks_with_timers: |no_leak: NoLeak| {
        let runtime = runtime();
        no_leak.run(|| runtime.block_on(async {
            let all: Vec<_> = (0..20).map(|n| tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_micros(n * 50)).await;
                black_box(vec![0u8; 100]);
            })).collect();
            for task in all {
                task.await.unwrap();
            }
        }))
    };
    an_asynchronous_channel: |no_leak: NoLeak| {
        let runtime = runtime();
        let (to, mut from) = tokio::sync::mpsc::unbounded_channel();
        no_leak.run(|| runtime.block_on(async {
            for n in 0..7 {
                to.send(n).unwrap();
                from.recv().await.unwrap();
            }
        }))
    };
    a_new_runtime_each_time: |no_leak: NoLeak| no_leak.run(|| {
        runtime().block_on(async { tokio::spawn(async {}).await.unwrap() });
    });
}

#[test]
fn a_ring_that_fills_up_after_the_warm_up_is_no_growth() {
    for most in [4, 64] {
        passes(|| {
            let mut ring = VecDeque::new();
            NoGrowth::new().iterations(40).run(|| {
                ring.push_back(vec![0u8; 100]);
                if ring.len() > most {
                    ring.pop_front();
                }
            })
        });
    }
}

#[test]
fn containers_that_have_a_bound() {
    for most in [100, 130, 150, 200, 250, 400] {
        passes(|| {
            let mut newest = VecDeque::new();
            NoLeak::new().run(|| {
                newest.push_back(1u64);
                if newest.len() > most {
                    newest.pop_front();
                }
            })
        });
        passes(|| {
            let mut first = Vec::new();
            NoGrowth::new().iterations(100).run(|| {
                if first.len() < most {
                    first.push(1u64);
                }
            })
        });
    }
    for most in [180, 220, 245] {
        let filled = || {
            let mut newest = VecDeque::with_capacity(1000);
            move || {
                newest.push_back(vec![0u8; 100]);
                if newest.len() > most {
                    newest.pop_front();
                }
            }
        };
        passes(|| NoLeak::new().run(filled()));
        passes(|| NoGrowth::new().iterations(100).run(filled()));
    }
    passes(|| {
        let (mut all, mut run) = ([const { VecDeque::<u64>::new() }; 3], 0);
        NoGrowth::new().iterations(300).run(|| {
            run += 1;
            all[run % 3].push_back(1);
            if all[run % 3].len() > 20 {
                all[run % 3].pop_front();
            }
        })
    });
}
