//! Stand-in for NCCL (`libnccl.so.2`): ranks meet, as processes or threads of one machine, and their collectives leave memory
//! unchanged. Each launches an empty kernel with its buffers, as the real library does.
//!
//! From 2.19 on the real library takes its buffers by `cuMemCreate`. Here a communicator takes, for each other rank and each of
//! two channels, one buffer of each of the sizes that NVIDIA/nccl#1685 reports; with one rank, as with two.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

use std::ffi::{CStr, OsStr, c_char};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use memtrace_cusim_libraries::{EmptyKernel, OutArg, done, driver_function, not_simulated};

include!(concat!(env!("OUT_DIR"), "/nccl.rs"));

const NOT_SUPPORTED: u32 = 5;
const CUDA_ERROR: u32 = 1;
const SYSTEM_ERROR: u32 = 2;
const INVALID_ARGUMENT: u32 = 4;

/// Sizes of the buffers of a channel to another rank.
const BUFFERS: [usize; 2] = [10_485_760, 2_097_152];
const CHANNELS: i32 = 2;

/// The longest time that ranks wait for each other.
const PATIENCE: Duration = Duration::from_secs(60);

/// The path of the file at which ranks meet, and then zeros.
#[repr(C)]
pub struct UniqueId([u8; 128]);

struct Communicator {
    ranks: i32,
    rank: i32,
    device: i32,
    buffers: Vec<Buffer>,
}

/// A range of addresses with its memory.
struct Buffer {
    address: u64,
    size: usize,
    handle: u64,
}

/// `CUmemAllocationProp`: pinned memory on a device.
#[repr(C)]
struct Properties {
    kind: u32,
    handle_types: u32,
    location: [i32; 2],
    rest: [u64; 2],
}

/// `CUmemAccessDesc`.
#[repr(C)]
struct Access {
    location: [i32; 2],
    flags: u32,
}

const DEVICE: i32 = 1;
const READ_AND_WRITE: u32 = 3;

impl Buffer {
    fn new(device: i32, size: usize) -> Option<Self> {
        let create = driver_function!(c"cuMemCreate": fn(*mut u64, usize, *const Properties, u64))?;
        let reserve = driver_function!(c"cuMemAddressReserve": fn(*mut u64, usize, usize, u64, u64))?;
        let map = driver_function!(c"cuMemMap": fn(u64, usize, usize, u64, u64))?;
        let set_access = driver_function!(c"cuMemSetAccess": fn(u64, usize, *const Access, usize))?;
        let location = [DEVICE, device];
        let properties = Properties { kind: 1, handle_types: 0, location, rest: [0; 2] };
        let access = Access { location, flags: READ_AND_WRITE };
        let mut buffer = Self { address: 0, size, handle: 0 };
        let is_mapped = create(&mut buffer.handle, size, &properties, 0) == 0
            && reserve(&mut buffer.address, size, 0, 0, 0) == 0
            && map(buffer.address, size, 0, buffer.handle, 0) == 0
            && set_access(buffer.address, size, &access, 1) == 0;
        is_mapped.then_some(buffer)
    }
}

impl Drop for Buffer {
    /// Undoes the steps that were done. For a step that was not done, the driver refuses the call.
    fn drop(&mut self) {
        if let Some(unmap) = driver_function!(c"cuMemUnmap": fn(u64, usize)) {
            unmap(self.address, self.size);
        }
        if let Some(free) = driver_function!(c"cuMemAddressFree": fn(u64, usize)) {
            free(self.address, self.size);
        }
        if let Some(release) = driver_function!(c"cuMemRelease": fn(u64)) {
            release(self.handle);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetVersion(version: OutArg<i32>) -> u32 {
    version.set(22_700, INVALID_ARGUMENT)
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(result: u32) -> *const c_char {
    let text = match result {
        0 => c"no error",
        CUDA_ERROR => c"unhandled cuda error",
        SYSTEM_ERROR => c"unhandled system error",
        INVALID_ARGUMENT => c"invalid argument",
        _ => c"invalid usage",
    };
    text.as_ptr()
}

/// Makes the file at which ranks meet. Each rank that comes adds a byte to it (`meet`).
#[unsafe(no_mangle)]
extern "C" fn ncclGetUniqueId(id: OutArg<UniqueId>) -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("memtrace-cusim-nccl-{}-{number}", std::process::id()));
    let mut bytes = [0; 128];
    let text = path.as_os_str().as_bytes();
    if text.len() >= bytes.len() || fs::File::create_new(&path).is_err() {
        return SYSTEM_ERROR;
    }
    bytes.iter_mut().zip(text).for_each(|(to, byte)| *to = *byte);
    id.set(UniqueId(bytes), INVALID_ARGUMENT)
}

impl UniqueId {
    fn path(&self) -> Option<PathBuf> {
        let text = CStr::from_bytes_until_nul(&self.0).ok().filter(|text| !text.is_empty())?;
        Some(Path::new(OsStr::from_bytes(text.to_bytes())).to_owned())
    }

    /// Waits until all ranks have come.
    fn meet(&self, ranks: i32) -> bool {
        let Some(path) = self.path() else { return false };
        let come = || OpenOptions::new().append(true).open(&path)?.write_all(b".");
        if come().is_err() {
            return false;
        }
        let began = Instant::now();
        while fs::metadata(&path).is_ok_and(|file| file.len() < ranks as u64) {
            if began.elapsed() > PATIENCE {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // The first rank that sees that all have come removes the file. For the others, the missing file ends the wait.
        let _ = fs::remove_file(path);
        true
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRank(communicator: OutArg<u64>, ranks: i32, id: UniqueId, rank: i32) -> u32 {
    if ranks < 1 || !(0..ranks).contains(&rank) {
        return INVALID_ARGUMENT;
    }
    if !id.meet(ranks) {
        return SYSTEM_ERROR;
    }
    let mut device = 0;
    let Some(current) = driver_function!(c"cuCtxGetDevice": fn(*mut i32)) else { return SYSTEM_ERROR };
    if current(&mut device) != 0 {
        return CUDA_ERROR;
    }
    let channels = (0..(ranks.max(2) - 1) * CHANNELS).flat_map(|_| BUFFERS);
    let Some(buffers) = channels.map(|size| Buffer::new(device, size)).collect() else { return CUDA_ERROR };
    let made = Box::new(Communicator { ranks, rank, device, buffers });
    communicator.set(Box::into_raw(made).expose_provenance() as u64, INVALID_ARGUMENT)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRankConfig(c: OutArg<u64>, ranks: i32, id: UniqueId, rank: i32, _config: u64) -> u32 {
    ncclCommInitRank(c, ranks, id, rank)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(communicator: u64) -> u32 {
    if communicator == 0 {
        return INVALID_ARGUMENT;
    }
    let made = std::ptr::with_exposed_provenance_mut::<Communicator>(communicator as usize);
    // SAFETY: the program passes what `ncclCommInitRank` made, once.
    drop(unsafe { Box::from_raw(made) });
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommAbort(communicator: u64) -> u32 {
    ncclCommDestroy(communicator)
}

fn of(communicator: u64) -> Option<&'static Communicator> {
    let made = std::ptr::with_exposed_provenance::<Communicator>(communicator as usize);
    // SAFETY: null, or what `ncclCommInitRank` made and the program has not destroyed.
    unsafe { made.as_ref() }
}

macro_rules! figures {
    ($(fn $name:ident($figure:ident);)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(communicator: u64, figure: OutArg<i32>) -> u32 {
            of(communicator).map_or(INVALID_ARGUMENT, |made| figure.set(made.$figure, INVALID_ARGUMENT))
        }
    )* };
}

figures! {
    fn ncclCommCount(ranks);
    fn ncclCommUserRank(rank);
    fn ncclCommCuDevice(device);
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommGetAsyncError(_communicator: u64, error: OutArg<u32>) -> u32 {
    error.set(0, INVALID_ARGUMENT)
}

/// Collectives, by the positions of their buffers, the communicator and the stream.
macro_rules! collectives {
    ($(fn $name:ident($($argument:ident: $type:ty),*) on $($buffer:ident),*;)*) => { $(
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the interface is NCCL's")]
        extern "C" fn $name($($argument: $type,)* communicator: u64, stream: u64) -> u32 {
            static KERNEL: EmptyKernel = EmptyKernel::named(concat!(stringify!($name), "_kernel"));
            let Some(made) = of(communicator) else { return INVALID_ARGUMENT };
            let own = made.buffers.first().map_or(0, |buffer| buffer.address);
            if KERNEL.launch(stream, &[$($buffer,)* own]) == 0 { 0 } else { CUDA_ERROR }
        }
    )* };
}

collectives! {
    fn ncclAllReduce(from: u64, to: u64, _count: usize, _type: u32, _operation: u32) on from, to;
    fn ncclReduce(from: u64, to: u64, _count: usize, _type: u32, _operation: u32, _root: i32) on from, to;
    fn ncclReduceScatter(from: u64, to: u64, _count: usize, _type: u32, _operation: u32) on from, to;
    fn ncclBroadcast(from: u64, to: u64, _count: usize, _type: u32, _root: i32) on from, to;
    fn ncclAllGather(from: u64, to: u64, _count: usize, _type: u32) on from, to;
    fn ncclSend(from: u64, _count: usize, _type: u32, _peer: i32) on from;
    fn ncclRecv(to: u64, _count: usize, _type: u32, _peer: i32) on to;
}

done! {
    fn ncclCommFinalize;
    fn ncclGroupStart;
    fn ncclGroupEnd;
}
