//! Allocates with cudarc on several streams and threads, with and without event tracking, and reads back the written
//! values. Prints the bytes of all requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::{CudaContext, CudaStream, DriverError};

static ASKED: AtomicU64 = AtomicU64::new(0);

const THREADS: usize = 4;
const ROUNDS: usize = 100;

fn main() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    println!("{}, {} bytes", context.name()?, context.total_mem()?);
    on_streams(&context)?;
    on_threads(&context)?;
    pinned(&context)?;
    context.synchronize()?;
    let (free, total) = context.mem_get_info()?;
    println!("asked for {} bytes, {} left over", ASKED.load(Ordering::Relaxed), total - free);
    Ok(())
}

/// Allocates a block on each of three streams, and hands it on to the next stream.
fn on_streams(context: &Arc<CudaContext>) -> Result<(), DriverError> {
    let streams = [context.default_stream(), context.new_stream()?, context.new_stream()?];
    for (index, stream) in streams.iter().enumerate() {
        let data: Vec<u32> = (0..1000).map(|n| n + index as u32).collect();
        let block = upload(stream, &data)?;
        let next = &streams[(index + 1) % streams.len()];
        next.join(stream)?;
        assert_eq!(next.clone_dtoh(&block)?, data);
    }
    Ok(())
}

fn on_threads(context: &Arc<CudaContext>) -> Result<(), DriverError> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| work(context))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })
}

fn work(context: &Arc<CudaContext>) -> Result<(), DriverError> {
    let stream = context.new_stream()?;
    for round in 0..ROUNDS {
        let mut block = upload(&stream, &vec![round as u32; 1 + round * 37])?;
        let copy = stream.clone_dtod(&block)?;
        asked(block.len());
        stream.memset_zeros(&mut block)?;
        assert!(stream.clone_dtoh(&block)?.iter().all(|word| *word == 0));
        assert!(stream.clone_dtoh(&copy)?.iter().all(|word| *word == round as u32));
    }
    Ok(())
}

fn pinned(context: &Arc<CudaContext>) -> Result<(), DriverError> {
    let stream = context.default_stream();
    // SAFETY: the block is written before it is read.
    let mut host = unsafe { context.alloc_pinned::<u32>(256)? };
    host.as_mut_slice()?.fill(5);
    let block = stream.clone_htod(&host)?;
    asked(block.len());
    assert_eq!(stream.clone_dtoh(&block)?, [5; 256]);
    Ok(())
}

fn upload(stream: &Arc<CudaStream>, data: &[u32]) -> Result<cudarc::driver::CudaSlice<u32>, DriverError> {
    asked(data.len());
    stream.clone_htod(data)
}

fn asked(words: usize) {
    ASKED.fetch_add(4 * words as u64, Ordering::Relaxed);
}
