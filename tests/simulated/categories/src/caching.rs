//! A caching allocator of the program on cudarc: it keeps its pages to the end, and hands out pieces.

use std::ops::Range;
use std::sync::Arc;

use candle_core::cuda_backend::cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DriverError};
use candle_core::{Device, Error, Result};
use memtrace::Category::{Input, Temporary};

use crate::truth::Truth;

const MIB: usize = 1 << 20;

/// All pieces have one size.
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
    /// From a new page if no page has a free piece of this size.
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

    fn view(&self, piece: &Piece) -> CudaView<'_, u8> {
        self.pages[piece.page].memory.slice(piece.bytes.clone())
    }

    fn view_mut(&mut self, piece: &Piece) -> CudaViewMut<'_, u8> {
        self.pages[piece.page].memory.slice_mut(piece.bytes.clone())
    }
}

fn address(memory: &CudaSlice<u8>) -> u64 {
    memory.device_ptr(memory.stream()).0
}

/// Reads a piece back through a block of the driver.
fn download(truth: &Truth, pool: &Pool, piece: &Piece) -> std::result::Result<Vec<u8>, DriverError> {
    let mut scratch = pool.stream.alloc_zeros(piece.bytes.len())?;
    truth.label_address(address(&scratch), Some(Temporary));
    pool.stream.memcpy_dtod(&pool.view(piece), &mut scratch)?;
    pool.stream.clone_dtoh(&scratch)
}

fn work(truth: &Truth, stream: Arc<CudaStream>) -> std::result::Result<(), DriverError> {
    let data = stream.clone_htod(&vec![1u8; 4 * MIB])?;
    truth.label_address(address(&data), Some(Input));
    let mut pool = Pool { stream: stream.clone(), pages: Vec::new() };
    let kept = pool.get(truth, 4 * MIB)?;
    stream.memcpy_dtod(&data, &mut pool.view_mut(&kept))?;
    for round in 1..=12 {
        let small = pool.get(truth, round * 1000)?;
        stream.memcpy_dtod(&data.slice(..round * 1000), &mut pool.view_mut(&small))?;
        let big = pool.get(truth, 30 * MIB)?;
        stream.memset_zeros(&mut pool.view_mut(&big))?;
        let middle = pool.get(truth, round * MIB / 2 + MIB)?;
        download(truth, &pool, &middle)?;
        [small, big, middle].into_iter().for_each(|piece| pool.put_back(piece));
    }
    download(truth, &pool, &kept)?;
    stream.synchronize()
}

pub(crate) fn run(truth: &Truth, device: &Device) -> Result<()> {
    work(truth, device.as_cuda_device()?.cuda_stream()).map_err(Error::wrap)
}
