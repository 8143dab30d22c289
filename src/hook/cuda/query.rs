//! Queries to the driver: memory pools, segments, addresses.
//!
//! Pools are compared with the ledger at a snapshot, after a failed allocation or on demand, but never for each event.

use std::ffi::c_int;

use memtrace_core::capture::Driver;
use memtrace_core::snapshot::{Device, DeviceMemory, DeviceThreads, GraphMemory, MADE_UP, Pool};

use super::driver::{self, SUCCESS};
use super::functions::*;
use super::table::HandleTable;
use super::types::Place;
use super::{device, pools};
use crate::hook::host;
use crate::record::ledger::segments::SegmentAnswer;
use crate::record::{device_memory, guard, recorder};

const RELEASE_THRESHOLD: c_int = 4;
const RESERVED_CURRENT: c_int = 5;
const RESERVED_HIGH: c_int = 6;
const USED_CURRENT: c_int = 7;
const USED_HIGH: c_int = 8;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

/// The driver's last answers about each device before its context ended.
static LAST: HandleTable<u32, Driver> = HandleTable::new();

/// The state of a device and of its default pool. If the device has no context any more, returns the answers from
/// before its last context ended.
pub(crate) fn driver(ordinal: u32) -> Driver {
    let now = said_now(ordinal);
    if now.memory.is_some() { now } else { LAST.change(ordinal, |last| *last).unwrap_or(now) }
}

fn said_now(ordinal: u32) -> Driver {
    if driver::is_loaded() { Driver { pool: pool(ordinal), memory: memory(ordinal) } } else { Driver::default() }
}

/// Called when a context is about to end. Keeps the state of each device that has no live blocks. For other devices
/// nothing is kept: their state includes blocks that later recordings do not have.
pub(super) fn remember() {
    if guard::state() & guard::OWN != 0 {
        return;
    }
    let _own = guard::own_work();
    for device in recorder::devices() {
        let Device::Cuda(ordinal) = device else { continue };
        let is_empty = device_memory::is_empty(device);
        let now = if is_empty { said_now(ordinal) } else { Driver::default() };
        // A device without a context keeps the answers from before its last context ended.
        if now.memory.is_some() || !is_empty {
            LAST.forget(ordinal);
            LAST.insert(ordinal, now);
        }
    }
}

/// Forgets the last answers. Called when a context ends while nothing is recorded.
pub(super) fn forget_last() {
    LAST.take_all(|_| true);
}

fn pool(ordinal: u32) -> Option<Pool> {
    let _relaxed = RelaxedCapture::enter()?;
    pool_of(device_at(ordinal)?)
}

/// Bytes in use in the default pool of every device. `None` if the driver is not initialized, so nothing is in use.
pub(crate) fn used_pools() -> Option<Vec<(u32, u64)>> {
    let count = if driver::is_loaded() { device::device_count()? } else { return None };
    let _relaxed = RelaxedCapture::enter();
    let used = |ordinal| Some((ordinal, pool_of(device_at(ordinal)?)?.used));
    Some((0..count).filter_map(used).collect())
}

/// Free and total bytes of the device on which a call requested memory. For memory that belongs to no single GPU, those
/// of the current context's device.
pub(super) fn asked(place: &Place) -> Option<(u64, u64)> {
    let Some(Device::Cuda(ordinal)) = place.device else { return device_memory() };
    // The pool may be on another device than the stream.
    let there = || if device::current_device() == Some(ordinal) { device_memory() } else { None };
    let in_context = if place.context == 0 { None } else { device::within(place.context, there).flatten() };
    in_context.or_else(|| with_context(device_at(ordinal)?, device_memory).flatten())
}

/// Free and total bytes of the current context's device.
fn device_memory() -> Option<(u64, u64)> {
    let _relaxed = RelaxedCapture::enter();
    let (mut free, mut total) = (0, 0);
    (cuMemGetInfo_v2(&mut free, &mut total)? == SUCCESS).then_some((free as u64, total as u64))
}

/// The memory of a device: free bytes, the program's own pools, and graphs.
fn memory(ordinal: u32) -> Option<DeviceMemory> {
    let _relaxed = RelaxedCapture::enter()?;
    let device = device_at(ordinal)?;
    let ((free, total), stack) = with_context(device, || Some((device_memory()?, stack_limit())))??;
    let unified = is_integrated(device).then(host::now);
    let threads = stack.zip(threads_of(device)).map(|(stack, count)| DeviceThreads { count, stack });
    let mut memory =
        DeviceMemory { free, total, graphs: graphs_of(device), unified, threads, ..DeviceMemory::default() };
    for pool in pools::of_device(ordinal) {
        let pool = pool as usize;
        memory.own_pools += 1;
        memory.own_pools_used += attribute(pool, USED_CURRENT).unwrap_or(0);
        memory.own_pools_reserved += attribute(pool, RESERVED_CURRENT).unwrap_or(0);
    }
    Some(memory)
}

/// Whether the device uses the host's memory.
fn is_integrated(device: c_int) -> bool {
    const INTEGRATED: c_int = 18;
    device_attribute(device, INTEGRATED).is_some_and(|value| value != 0)
}

/// The threads that the device can run at once.
fn threads_of(device: c_int) -> Option<u64> {
    const MULTIPROCESSORS: c_int = 16;
    const THREADS_OF_EACH: c_int = 39;
    let [count, of_each] = [MULTIPROCESSORS, THREADS_OF_EACH].map(|attribute| device_attribute(device, attribute));
    count?.checked_mul(of_each?)
}

fn device_attribute(device: c_int, attribute: c_int) -> Option<u64> {
    answer(|value| cuDeviceGetAttribute(value, attribute, device))?.try_into().ok()
}

/// Bytes of stack of each thread in the current context.
fn stack_limit() -> Option<u64> {
    const STACK_SIZE: c_int = 0;
    answer(|value| cuCtxGetLimit(value, STACK_SIZE)).map(|bytes| bytes as u64)
}

/// Runs a closure in a context of the device, if the device has one. Does not create a context.
fn with_context<T>(device: c_int, act: impl FnOnce() -> T) -> Option<T> {
    if device::current_device().is_some_and(|current| c_int::try_from(current) == Ok(device)) {
        return Some(act());
    }
    let context = RetainedContext::of(device)?;
    device::within(context.handle, act)
}

pub(super) fn primary(device: c_int) -> Option<usize> {
    RetainedContext::of(device).map(|context| context.handle)
}

pub(super) fn primary_is_active(device: c_int) -> bool {
    let mut flags = 0;
    answer(|active| cuDevicePrimaryCtxGetState(device, &mut flags, active)).is_some_and(|active| active != 0)
}

/// A reference to a primary context. It is taken only if the context was active before, so it creates no context.
struct RetainedContext {
    device: c_int,
    handle: usize,
}

impl RetainedContext {
    fn of(device: c_int) -> Option<Self> {
        if !primary_is_active(device) {
            return None;
        }
        let handle = answer(|context| cuDevicePrimaryCtxRetain(context, device))?;
        Some(Self { device, handle })
    }
}

impl Drop for RetainedContext {
    fn drop(&mut self) {
        cuDevicePrimaryCtxRelease_v2(self.device);
    }
}

fn graphs_of(device: c_int) -> Option<GraphMemory> {
    let [used, used_high, reserved, reserved_high] = [0, 1, 2, 3].map(|attribute| graph_attribute(device, attribute));
    Some(GraphMemory { used: used?, used_high: used_high?, reserved: reserved?, reserved_high: reserved_high? })
}

fn graph_attribute(device: c_int, attribute: c_int) -> Option<u64> {
    answer(|value| cuDeviceGetGraphMemAttribute(device, attribute, value))
}

pub(super) fn reserved(pool: u64) -> Option<u64> {
    let _relaxed = RelaxedCapture::enter()?;
    attribute(pool as usize, RESERVED_CURRENT)
}

/// The segment that contains an address. For memory of a pool (`of_pool`), the answer includes the pool's handle and
/// reserved bytes.
pub(super) fn segment(address: u64, of_pool: bool) -> Option<SegmentAnswer> {
    const POOL: c_int = 17;
    const MAPPING_SIZE: c_int = 18;
    const MAPPING_BASE: c_int = 19;
    let (start, size) = (of_address(address, MAPPING_BASE)?, of_address(address, MAPPING_SIZE)?);
    let pool = if of_pool { of_address(address, POOL).filter(|pool| *pool != 0)? } else { 0 };
    let pool_reserved = if pool == 0 { 0 } else { reserved(pool)? };
    Some(SegmentAnswer { address: start, size, pool, pool_reserved })
}

pub(super) fn range_size(address: u64) -> Option<u64> {
    const RANGE_SIZE: c_int = 12;
    of_address(address, RANGE_SIZE)
}

/// Whether a pool has host or managed memory.
fn is_elsewhere(pool: u64) -> bool {
    matches!(pools::device_of(pool), Some(Device::Pinned | Device::Managed))
}

/// The device and the size of a block of a GPU's pool. The size is rounded up to 512 bytes, which is how pools count
/// it, as far as is known.
pub(super) fn pool_block(address: u64) -> Option<(u32, u64)> {
    const POOL: c_int = 17;
    of_address(address, POOL).filter(|pool| *pool != 0 && !is_elsewhere(*pool))?;
    Some((device::owner(address)?, range_size(address)?.checked_next_multiple_of(512)?))
}

/// Whether the driver no longer knows an address.
pub(super) fn is_gone(address: u64) -> bool {
    const INVALID_VALUE: c_int = 1;
    const MEMORY_TYPE: c_int = 2;
    // The driver does not know made-up addresses.
    address < MADE_UP && cuPointerGetAttribute(&mut 0, MEMORY_TYPE, address) == Some(INVALID_VALUE)
}

fn of_address(address: u64, attribute: c_int) -> Option<u64> {
    answer(|value| cuPointerGetAttribute(value, attribute, address))
}

fn device_at(ordinal: u32) -> Option<c_int> {
    let ordinal = ordinal.try_into().ok()?;
    answer(|device| cuDeviceGet(device, ordinal))
}

fn pool_of(device: c_int) -> Option<Pool> {
    let pool = answer(|pool| cuDeviceGetDefaultMemPool(pool, device))?;
    Some(Pool {
        used: attribute(pool, USED_CURRENT)?,
        used_high: attribute(pool, USED_HIGH)?,
        reserved: attribute(pool, RESERVED_CURRENT)?,
        reserved_high: attribute(pool, RESERVED_HIGH)?,
        release_threshold: attribute(pool, RELEASE_THRESHOLD)?,
        used_before: None,
    })
}

fn attribute(pool: DriverObject, attribute: c_int) -> Option<u64> {
    answer(|value| cuMemPoolGetAttribute(pool, attribute, value))
}

/// Allows queries that would otherwise invalidate a stream capture of this or another thread.
struct RelaxedCapture {
    before: c_int,
}

impl RelaxedCapture {
    fn enter() -> Option<Self> {
        let mut before = RELAXED;
        (cuThreadExchangeStreamCaptureMode(&mut before)? == SUCCESS).then_some(Self { before })
    }
}

impl Drop for RelaxedCapture {
    fn drop(&mut self) {
        cuThreadExchangeStreamCaptureMode(&mut self.before);
    }
}
