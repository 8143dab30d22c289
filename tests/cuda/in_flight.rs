//! Calls under way while another thread ends their context. `late@` lets a call return after the driver has done it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use cudarc::driver::sys::CUcontext;
use cudarc::driver::sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED;
use memtrace::snapshot::RecordKind;
use memtrace::{Device, Session};

use crate::raw;
use crate::support::on_gpu;
use crate::truth::{ALLOC, assert_live_equals_truth, device_of, truth};

const LATE: [(&str, &str); 2] =
    [("MEMTRACE_CUSIM_DEVICES", "2"), ("MEMTRACE_CUSIM_FAULTS", "late@alloc:200ms;late@free:200ms")];

/// A context, stream or pool.
#[derive(Clone, Copy)]
struct Handle(CUcontext);
// SAFETY: the driver's objects are of all threads.
unsafe impl Send for Handle {}

impl Handle {
    /// Takes the whole value, which is `Send`, into a closure.
    fn raw(self) -> CUcontext {
        self.0
    }
}

/// A new context of a device, current on no thread.
fn new_context(device: i32) -> Handle {
    let context = Handle(raw::context_create(std::ptr::null_mut(), 0, device).unwrap());
    raw::pop_current().unwrap();
    context
}

/// Runs `call` in the context on another thread, and ends the context once the driver has done it, before it returns.
fn end_during(context: Handle, call: impl FnOnce() + Send) {
    let (to, from) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            raw::set_current(context.raw()).unwrap();
            to.send(truth().len()).unwrap();
            call();
        });
        let before = from.recv().unwrap();
        while truth().len() == before {
            thread::sleep(Duration::from_millis(1));
        }
        raw::context_destroy(context.raw()).unwrap();
    });
}

/// A recording of two devices, each with its primary context.
fn start() -> Session {
    let session = memtrace::start().unwrap();
    raw::init(0).unwrap();
    [0, 1].into_iter().for_each(|device| _ = raw::primary_retain(device).unwrap());
    session
}

type Counts = HashMap<(Device, RecordKind, u64), usize>;

/// Compares what happened, whatever the order, and what is live.
fn assert_complete(session: &Session) -> Counts {
    let snapshot = session.snapshot();
    let (mut counts, mut truths) = (Counts::new(), Counts::new());
    for device in snapshot.devices.iter().filter(|device| device.device != Device::Cpu) {
        for record in &device.records {
            *counts.entry((device.device, record.kind, record.size)).or_default() += 1;
        }
    }
    for event in truth() {
        let kind = if event.op == ALLOC { RecordKind::Alloc } else { RecordKind::Free };
        *truths.entry((device_of(&event), kind, event.size)).or_default() += 1;
    }
    assert_eq!(counts, truths);
    assert_live_equals_truth(&snapshot);
    let health = &snapshot.health;
    assert_eq!((health.lost_blocks, health.unplaced_blocks, health.unknown_frees), (0, 0, 0));
    counts
}

/// A block of this size came to the device and went.
fn came_and_went(counts: &Counts, device: Device, size: u64) -> bool {
    [RecordKind::Alloc, RecordKind::Free].iter().all(|kind| counts.get(&(device, *kind, size)) == Some(&1))
}

#[test]
fn a_block_whose_context_ends_during_the_call_came_and_went() {
    on_gpu(&LATE, || {
        let session = start();
        let there = Device::Cuda(1);
        end_during(new_context(1), || _ = raw::alloc(1000));
        end_during(new_context(1), || _ = raw::alloc_async(2000, raw::PER_THREAD));
        end_during(new_context(1), || _ = raw::alloc_async(3000, raw::LEGACY));
        end_during(new_context(1), || _ = raw::managed(4000, 1));
        let pool = Handle(raw::shared_pool(1).unwrap().cast());
        end_during(new_context(1), move || _ = raw::alloc_from_pool(5000, pool.raw().cast(), raw::LEGACY));
        let counts = assert_complete(&session);
        assert!([1000, 2000, 3000, 5000].iter().all(|size| came_and_went(&counts, there, *size)), "{counts:?}");
        assert!(came_and_went(&counts, Device::Managed, 4000), "{counts:?}");
    });
}

/// Another device's context is current on the thread: only the stream says where the block is.
#[test]
fn a_block_of_a_stream_is_on_its_device_even_if_the_stream_goes() {
    on_gpu(&LATE, || {
        let session = start();
        let context = new_context(1);
        raw::set_current(context.raw()).unwrap();
        let stream = Handle(raw::stream_create(1).unwrap().cast());
        let primary = Handle(raw::primary_retain(0).unwrap());
        end_during(context, move || {
            raw::set_current(primary.raw()).unwrap();
            raw::alloc_async(1000, stream.raw().cast()).unwrap();
        });
        let counts = assert_complete(&session);
        assert!(came_and_went(&counts, Device::Cuda(1), 1000), "{counts:?}");
    });
}

/// The stream is gone when the call returns, and was captured when it began.
#[test]
fn an_allocation_of_a_capture_whose_context_ends_is_no_block() {
    on_gpu(&LATE, || {
        let session = start();
        let context = new_context(1);
        let (to, from) = channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                raw::set_current(context.raw()).unwrap();
                let stream = raw::stream_create(1).unwrap();
                raw::begin_capture(stream, RELAXED).unwrap();
                to.send(()).unwrap();
                let _ = raw::alloc_async(1000, stream);
            });
            from.recv().unwrap();
            thread::sleep(Duration::from_millis(50));
            raw::context_destroy(context.raw()).unwrap();
        });
        assert!(assert_complete(&session).is_empty());
    });
}

#[test]
fn a_free_that_its_context_forestalls_leaves_no_block() {
    on_gpu(&[("MEMTRACE_CUSIM_DEVICES", "2"), ("MEMTRACE_CUSIM_FAULTS", "slow@free:300ms")], || {
        let session = start();
        let context = new_context(1);
        raw::set_current(context.raw()).unwrap();
        let block = raw::alloc(1000).unwrap();
        raw::set_current(std::ptr::null_mut()).unwrap();
        thread::scope(|scope| {
            let (to, from) = channel();
            scope.spawn(move || {
                raw::set_current(context.raw()).unwrap();
                to.send(()).unwrap();
                let _ = raw::free(block);
            });
            from.recv().unwrap();
            thread::sleep(Duration::from_millis(50));
            raw::context_destroy(context.raw()).unwrap();
        });
        let counts = assert_complete(&session);
        assert!(came_and_went(&counts, Device::Cuda(1), 1000), "{counts:?}");
    });
}

#[test]
fn no_block_is_lost_between_threads_that_allocate_and_end_contexts() {
    on_gpu(&LATE[..1], || {
        let session = start();
        let contexts = [0, 1].map(|of| Mutex::new(new_context(of)));
        let work = |seed: usize| {
            for round in 0..400 {
                let of = (seed + round) % 2;
                let current = contexts[of].lock().unwrap().raw();
                if round % 8 == 7 {
                    let mut shared = contexts[of].lock().unwrap();
                    let _ = raw::context_destroy(std::mem::replace(&mut *shared, new_context(of as i32)).raw());
                }
                // The context may be gone: then the driver refuses what follows.
                let _ = raw::set_current(current);
                let blocks = [raw::alloc(100 + seed), raw::alloc_async(200 + seed, raw::PER_THREAD)];
                blocks.into_iter().flatten().filter(|_| round % 3 > 0).for_each(|block| _ = raw::free(block));
            }
        };
        thread::scope(|scope| {
            (0..6).for_each(|seed| {
                _ = scope.spawn({
                    let work = &work;
                    move || work(seed)
                })
            })
        });
        assert_complete(&session);
    });
}
