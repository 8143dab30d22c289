//! A program that is linked against the driver, with or without a recording (`off`), while some calls are refused.
//! Built with panic=unwind and with panic=abort, where a panic in a hook would end the program.

use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError};
use truth::{assert_live_equals_truth, truth};

#[allow(dead_code, unsafe_code, reason = "shared with tests that use all of it; calls C")]
#[path = "../../../cuda/truth.rs"]
mod truth;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

fn main() {
    let recorded = std::env::args().nth(1).as_deref() != Some("off");
    let session = recorded.then(|| memtrace::start().expect("no other session is under way"));
    let context = CudaContext::new(0).expect("there is a device");
    let refused: usize = std::thread::scope(|scope| {
        let start = |number| {
            let context = context.clone();
            scope.spawn(move || work(number, context))
        };
        let threads: Vec<_> = (0..4).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    });
    if let Some(session) = session {
        let snapshot = session.snapshot();
        assert_live_equals_truth(&snapshot);
        println!("{} frees refused", snapshot.health.refused_frees);
    }
    println!("{refused} allocations refused, {} events", truth().len());
}

/// Returns the number of refused allocations.
fn work(number: usize, context: Arc<CudaContext>) -> usize {
    context.bind_to_thread().expect("the context is a live one");
    let stream = context.new_stream().expect("there is room for a stream");
    let mut kept = Vec::new();
    let block = |round: usize| -> Result<_, DriverError> {
        let large = stream.alloc_zeros::<u8>(1000 * (1 + number) + round)?;
        let small = stream.alloc_zeros::<f32>(round + 1)?;
        Ok((large, small))
    };
    let mut refused = 0;
    for round in 0..200 {
        match block(round) {
            Ok(blocks) => kept.push(blocks),
            Err(_) => refused += 1,
        }
        if round % 3 == 0 {
            kept.pop();
        }
    }
    refused
}
