//! What the driver says of its pools, to hold the ledger against. Asked at a snapshot, when an allocation
//! failed or on demand, never per event.
#![expect(unsafe_code, reason = "the driver is asked in C")]

use std::ffi::{c_int, c_void};

use super::driver::{self, Function, SUCCESS};
use crate::snapshot::Pool;

const RELEASE_THRESHOLD: c_int = 4;
const RESERVED_CURRENT: c_int = 5;
const RESERVED_HIGH: c_int = 6;
const USED_CURRENT: c_int = 7;
const USED_HIGH: c_int = 8;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

static GET_COUNT: Function = Function::new(c"cuDeviceGetCount");
static GET_DEVICE: Function = Function::new(c"cuDeviceGet");
static GET_POOL: Function = Function::new(c"cuDeviceGetDefaultMemPool");
static GET_ATTRIBUTE: Function = Function::new(c"cuMemPoolGetAttribute");
static EXCHANGE_MODE: Function = Function::new(c"cuThreadExchangeStreamCaptureMode");

type GetCount = unsafe extern "C" fn(*mut c_int) -> c_int;
type GetDevice = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type GetPool = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type GetAttribute = unsafe extern "C" fn(*mut c_void, c_int, *mut u64) -> c_int;
type ExchangeMode = unsafe extern "C" fn(*mut c_int) -> c_int;

/// What the driver says of a device's default pool, as far as it can be asked now.
pub(crate) fn pool(ordinal: u32) -> Option<Pool> {
    if !driver::is_loaded() {
        return None;
    }
    let _relaxed = Relaxed::enter()?;
    pool_of(device(ordinal)?)
}

/// Bytes in use in the default pool of every device; `None` if the driver has not been started yet, so that
/// nothing is.
pub(crate) fn used_pools() -> Option<Vec<(u32, u64)>> {
    let count = if driver::is_loaded() { device_count()? } else { return None };
    let _relaxed = Relaxed::enter();
    let used = |ordinal| Some((ordinal, pool_of(device(ordinal)?)?.used));
    Some((0..count).filter_map(used).collect())
}

/// (free, total) bytes of the current context's device.
pub(super) fn device_memory() -> Option<(u64, u64)> {
    type GetInfo = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
    static GET_INFO: Function = Function::new(c"cuMemGetInfo_v2");
    let _relaxed = Relaxed::enter();
    // SAFETY: the address is that of the function with this signature.
    let get_info = unsafe { std::mem::transmute::<usize, GetInfo>(GET_INFO.address()?) };
    let (mut free, mut total) = (0, 0);
    // SAFETY: the places for the answers are ours.
    let result = unsafe { get_info(&mut free, &mut total) };
    (result == SUCCESS).then_some((free as u64, total as u64))
}

/// How many devices there are, if the driver has been initialised.
pub(super) fn device_count() -> Option<u32> {
    // SAFETY: the address is that of the function with this signature.
    let get_count = unsafe { std::mem::transmute::<usize, GetCount>(GET_COUNT.address()?) };
    let mut count = 0;
    // SAFETY: the place for the answer is ours.
    let result = unsafe { get_count(&mut count) };
    if result == SUCCESS { count.try_into().ok() } else { None }
}

fn device(ordinal: u32) -> Option<c_int> {
    // SAFETY: the address is that of the function with this signature.
    let get_device = unsafe { std::mem::transmute::<usize, GetDevice>(GET_DEVICE.address()?) };
    let mut device = 0;
    // SAFETY: the place for the answer is ours.
    let result = unsafe { get_device(&mut device, ordinal.try_into().ok()?) };
    (result == SUCCESS).then_some(device)
}

fn pool_of(device: c_int) -> Option<Pool> {
    // SAFETY: the address is that of the function with this signature.
    let get_pool = unsafe { std::mem::transmute::<usize, GetPool>(GET_POOL.address()?) };
    let mut pool = std::ptr::null_mut();
    // SAFETY: the place for the answer is ours.
    if unsafe { get_pool(&mut pool, device) } != SUCCESS {
        return None;
    }
    Some(Pool {
        used: attribute(pool, USED_CURRENT)?,
        used_high: attribute(pool, USED_HIGH)?,
        reserved: attribute(pool, RESERVED_CURRENT)?,
        reserved_high: attribute(pool, RESERVED_HIGH)?,
        release_threshold: attribute(pool, RELEASE_THRESHOLD)?,
        used_before: None,
    })
}

fn attribute(pool: *mut c_void, attribute: c_int) -> Option<u64> {
    // SAFETY: the address is that of the function with this signature.
    let get = unsafe { std::mem::transmute::<usize, GetAttribute>(GET_ATTRIBUTE.address()?) };
    let mut value = 0;
    // SAFETY: the pool is the driver's, and all attributes that are asked for have this size.
    let result = unsafe { get(pool, attribute, &mut value) };
    (result == SUCCESS).then_some(value)
}

/// While this lives the thread may ask what would otherwise spoil a stream capture, its own or another
/// thread's.
struct Relaxed {
    exchange: ExchangeMode,
    before: c_int,
}

impl Relaxed {
    fn enter() -> Option<Self> {
        // SAFETY: the address is that of the function with this signature.
        let exchange = unsafe { std::mem::transmute::<usize, ExchangeMode>(EXCHANGE_MODE.address()?) };
        let mut mode = RELAXED;
        // SAFETY: the place is ours; the mode is the calling thread's.
        let result = unsafe { exchange(&mut mode) };
        (result == SUCCESS).then_some(Self { exchange, before: mode })
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: as when it was entered.
        unsafe { (self.exchange)(&mut self.before) };
    }
}
