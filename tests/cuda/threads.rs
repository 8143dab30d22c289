//! Several threads and CUDA streams at once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Barrier, OnceLock};
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaSlice};
use memtrace::snapshot::RecordKind;
use memtrace::{Device, Enabled, Session, StackContext};

use crate::raw;
use crate::support::on_gpu;
use crate::truth::{FREE, assert_equals_truth, assert_live_equals_truth, device_of, truth};

#[test]
fn streams_and_threads_are_told_apart() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        std::thread::scope(|scope| {
            for number in 1..=4usize {
                let context = &context;
                scope.spawn(move || {
                    context.bind_to_thread().unwrap();
                    let own = context.new_stream().unwrap();
                    for round in 0..100 {
                        let block = own.clone_htod(&vec![0u8; number * 1000 + round]).unwrap();
                        let other = raw::alloc_async(number, raw::PER_THREAD).unwrap();
                        drop(block);
                        raw::free_async(other, raw::PER_THREAD).unwrap();
                    }
                });
            }
        });
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, false);
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        assert_eq!(gpu.records.len(), 4 * 100 * 4);
        // Each thread has used two streams of its own.
        let mut thread_of = HashMap::new();
        for record in gpu.records.iter().filter(|record| record.kind == RecordKind::Alloc) {
            assert_ne!(record.stream, 0);
            let key = (record.stream, record.size < 1000);
            assert_eq!(*thread_of.entry(key).or_insert(record.thread), record.thread);
        }
        assert_eq!(thread_of.len(), 8);
    });
}

#[test]
fn threads_that_start_cuda_at_once_are_all_recorded() {
    static SESSION: OnceLock<Session> = OnceLock::new();
    fn record() {
        // Meanwhile the others return from `cuInit`, if nothing stops them.
        std::thread::sleep(Duration::from_millis(100));
        SESSION.set(memtrace::start().unwrap()).unwrap();
        // Like a callback that queries the driver.
        CudaContext::device_count().unwrap();
    }
    on_gpu(&[], || {
        const THREADS: usize = 8;
        assert!(memtrace::on_cuda_start(record), "no other copy of memtrace is in this process");
        let barrier = Barrier::new(THREADS);
        let work = || {
            barrier.wait();
            let stream = CudaContext::new(0).unwrap().default_stream();
            drop((0..100).map(|_| stream.alloc_zeros::<u8>(1 << 20).unwrap()).collect::<Vec<_>>());
        };
        std::thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
        let snapshot = SESSION.get().unwrap().snapshot();
        assert_equals_truth(&snapshot, false);
        assert_eq!(snapshot.device(Device::Cuda(0)).unwrap().records.len(), 2 * THREADS * 100);
    });
}

#[test]
fn a_block_can_be_dropped_on_another_thread() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let block = stream.alloc_zeros::<u8>(1000).unwrap();
        // This thread has no context, and cudarc sets none. Whatever the driver does, the ledger agrees.
        std::thread::scope(|scope| scope.spawn(move || drop(block)).join().unwrap());
        assert_live_equals_truth(&session.snapshot());
        let legacy = context.default_stream().alloc_zeros::<u8>(3000).unwrap();
        std::thread::scope(|scope| scope.spawn(move || drop(legacy)).join().unwrap());
        let snapshot = session.snapshot();
        assert_live_equals_truth(&snapshot);
        let refused = 2 - truth().iter().filter(|record| record.op == FREE).count() as u64;
        assert_eq!(snapshot.health.refused_frees, refused);
    });
}

#[test]
fn destructors_of_thread_locals_are_seen() {
    struct AtExit(RefCell<Option<(Arc<CudaContext>, CudaSlice<u8>)>>);
    impl Drop for AtExit {
        fn drop(&mut self) {
            if let Some((context, block)) = self.0.take() {
                context.bind_to_thread().unwrap();
                let late = context.default_stream().alloc_zeros::<u8>(2000).unwrap();
                drop(block);
                std::mem::forget(late);
            }
        }
    }
    thread_local!(static KEPT: AtExit = const { AtExit(RefCell::new(None)) });
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        // Joined explicitly, because the end of a scope does not wait for destructors.
        let work = move || {
            let block = context.default_stream().alloc_zeros::<u8>(1000).unwrap();
            KEPT.with(|kept| kept.0.replace(Some((context, block))));
        };
        std::thread::spawn(work).join().unwrap();
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!(snapshot.device(Device::Cuda(0)).unwrap().stats.allocated_bytes.current, 2000);
    });
}

/// Many blocks on each of two threads, which free each other's. The other thread gets the address of a block
/// before the call that frees it has returned (ABA).
#[test]
fn an_address_that_is_used_again_at_once_is_nobody_elses() {
    let rounds = if std::env::var_os("MEMTRACE_CASES").is_some() { 500_000 } else { 100_000 };
    let variables = [("MEMTRACE_CUSIM_FAULTS", "reuse=immediate"), ("MEMTRACE_CONTEXT", "none")];
    on_gpu(&variables, || {
        let builder = memtrace::builder().max_entries(8 * rounds).enabled(Enabled::All);
        let session = builder.context(StackContext::None).start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let (to_second, from_first) = sync_channel(4);
        let (to_first, from_second) = sync_channel(4);
        let work = |number: usize, to: std::sync::mpsc::SyncSender<u64>, from: std::sync::mpsc::Receiver<u64>| {
            context.bind_to_thread().unwrap();
            for round in 0..rounds {
                let block = raw::alloc_async(600 + number + 2 * (round % 100), raw::LEGACY).unwrap();
                if to.send(block).is_err() {
                    return;
                }
                if let Ok(other) = from.try_recv() {
                    raw::free_async(other, raw::LEGACY).unwrap();
                }
            }
            drop(to);
            from.into_iter().for_each(|other| raw::free_async(other, raw::LEGACY).unwrap());
        };
        std::thread::scope(|scope| {
            scope.spawn(|| work(0, to_second, from_second));
            scope.spawn(|| work(1, to_first, from_first));
        });
        let snapshot = session.snapshot();
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        assert_eq!(gpu.records.len(), 4 * rounds);
        assert_equals_truth(&snapshot, false);
        // Each record has the thread that the simulator logged.
        let os_ids: HashMap<_, _> = snapshot.process.threads.iter().map(|t| (t.number, u64::from(t.os_id))).collect();
        let mut threads: HashMap<u64, Vec<u64>> = HashMap::new();
        for record in truth().iter().filter(|record| device_of(record) == Device::Cuda(0)) {
            threads.entry(record.address).or_default().push(record.thread);
        }
        for record in gpu.records.iter().rev() {
            assert_eq!(threads.get_mut(&record.address).and_then(Vec::pop), Some(os_ids[&record.thread]));
        }
        assert!(threads.len() < 100, "{} addresses were used again and again", threads.len());
        assert_eq!((snapshot.health.missed_frees, snapshot.health.unknown_frees), (0, 0));
    });
}
