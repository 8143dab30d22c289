//! An allocator of the program's own on cudarc: it keeps its pages until it goes, and hands pieces of them out.

use std::ops::Range;
use std::sync::Arc;

use candle_core::cuda_backend::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DriverError};
use candle_core::{Device, Error, Result};
use memtrace::Category::{Input, Temporary};

use crate::truth::Truth;

const MIB: usize = 1 << 20;

/// Of one size of pieces.
struct Page {
    memory: CudaSlice<u8>,
    piece: usize,
    free: Vec<usize>,
}

/// A piece of a page.
struct Piece {
    page: usize,
    bytes: Range<usize>,
}

struct Pool {
    stream: Arc<CudaStream>,
    pages: Vec<Page>,
}

impl Pool {
    /// A page for the size, unless there is one.
    fn get(&mut self, truth: &Truth, bytes: usize) -> std::result::Result<Piece, DriverError> {
        let (size, piece) = match bytes / MIB {
            0 => (20 * MIB, MIB),
            1..10 => (80 * MIB, 10 * MIB),
            _ => (200 * MIB, 50 * MIB),
        };
        let is_fit = |page: &Page| page.piece == piece && !page.free.is_empty();
        let page = match self.pages.iter().position(is_fit) {
            Some(page) => page,
            None => {
                let memory = self.stream.alloc_zeros(size)?;
                truth.label_address(address(&memory), None);
                self.pages.push(Page { memory, piece, free: (0..size / piece).rev().collect() });
                self.pages.len() - 1
            }
        };
        let at = self.pages[page].free.pop().expect("it has a free one") * piece;
        Ok(Piece { page, bytes: at..at + bytes })
    }

    fn put_back(&mut self, piece: Piece) {
        let page = &mut self.pages[piece.page];
        page.free.push(piece.bytes.start / page.piece);
    }

    fn fill(&mut self, piece: &Piece, from: &CudaSlice<u8>) -> std::result::Result<(), DriverError> {
        let mut to = self.pages[piece.page].memory.slice_mut(piece.bytes.clone());
        self.stream.memcpy_dtod(from, &mut to)
    }
}

fn address(memory: &CudaSlice<u8>) -> u64 {
    memory.device_ptr(memory.stream()).0
}

/// Brings data in, by way of blocks of the driver.
fn upload(truth: &Truth, pool: &mut Pool, bytes: usize) -> std::result::Result<Piece, DriverError> {
    let data = pool.stream.clone_htod(&vec![1u8; bytes])?;
    truth.label_address(address(&data), Some(Input));
    let mut swapped = pool.stream.alloc_zeros(bytes)?;
    truth.label_address(address(&swapped), Some(Temporary));
    pool.stream.memcpy_dtod(&data, &mut swapped)?;
    let piece = pool.get(truth, bytes)?;
    pool.fill(&piece, &swapped)?;
    Ok(piece)
}

fn work(truth: &Truth, stream: Arc<CudaStream>) -> std::result::Result<(), DriverError> {
    let mut pool = Pool { stream, pages: Vec::new() };
    let kept = upload(truth, &mut pool, 2 * MIB)?;
    for round in 1..=12 {
        let small = upload(truth, &mut pool, round * 1000)?;
        let big = pool.get(truth, 30 * MIB)?;
        let middle = pool.get(truth, round * MIB / 2 + MIB)?;
        [small, big, middle].into_iter().for_each(|piece| pool.put_back(piece));
    }
    pool.put_back(kept);
    pool.stream.synchronize()
}

pub(crate) fn run(truth: &Truth, device: &Device) -> Result<()> {
    work(truth, device.as_cuda_device()?.cuda_stream()).map_err(Error::wrap)
}
