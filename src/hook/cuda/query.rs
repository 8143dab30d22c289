//! What the driver says of its pools, to hold the ledger against. Asked at a snapshot, when an allocation
//! failed or on demand, never per event.
#![expect(unsafe_code, reason = "the driver is asked in C")]

use std::ffi::{c_int, c_uint, c_void};

use super::driver::{self, Function, SUCCESS};
use super::{place, pools};
use crate::record::segments::Told;
use crate::snapshot::{DeviceMemory, GraphMemory, Pool};

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

/// What a device's pools of the program's own and its graphs have, and what nobody has.
pub(crate) fn memory(ordinal: u32) -> Option<DeviceMemory> {
    if !driver::is_loaded() {
        return None;
    }
    let _relaxed = Relaxed::enter()?;
    let (free, total) = with_context(device(ordinal)?, device_memory)??;
    let mut memory = DeviceMemory { free, total, graphs: graphs_of(device(ordinal)?), ..DeviceMemory::default() };
    for pool in pools::of_device(ordinal) {
        let pool = std::ptr::with_exposed_provenance_mut(pool as usize);
        memory.own_pools += 1;
        memory.own_pools_used += attribute(pool, USED_CURRENT).unwrap_or(0);
        memory.own_pools_reserved += attribute(pool, RESERVED_CURRENT).unwrap_or(0);
    }
    Some(memory)
}

/// Does something in a context of the device, if it has one: none is made for it.
fn with_context<T>(device: c_int, act: impl FnOnce() -> T) -> Option<T> {
    if place::current_device().is_some_and(|current| c_int::try_from(current) == Ok(device)) {
        return Some(act());
    }
    let context = Retained::of(device)?;
    let pushed = one_word(&PUSH, context.handle)? == SUCCESS;
    let answer = pushed.then(act);
    if pushed {
        let mut popped = 0usize;
        one_word(&POP, (&raw mut popped).addr());
    }
    answer
}

/// The primary context of a device, if it has one.
pub(super) fn primary(device: c_int) -> Option<usize> {
    Retained::of(device).map(|context| context.handle)
}

pub(super) fn primary_is_active(device: c_int) -> bool {
    type GetState = unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> c_int;
    static GET_STATE: Function = Function::new(c"cuDevicePrimaryCtxGetState");
    let Some(address) = GET_STATE.address() else { return false };
    // SAFETY: the address is that of the function with this signature.
    let get = unsafe { std::mem::transmute::<usize, GetState>(address) };
    let (mut flags, mut active) = (0, 0);
    // SAFETY: the places for the answers are ours.
    let result = unsafe { get(device, &mut flags, &mut active) };
    result == SUCCESS && active != 0
}

/// A reference to a primary context that is active anyhow.
struct Retained {
    device: c_int,
    handle: usize,
}

impl Retained {
    fn of(device: c_int) -> Option<Self> {
        type Retain = unsafe extern "C" fn(*mut usize, c_int) -> c_int;
        static RETAIN: Function = Function::new(c"cuDevicePrimaryCtxRetain");
        if !primary_is_active(device) {
            return None;
        }
        // SAFETY: the address is that of the function with this signature.
        let retain = unsafe { std::mem::transmute::<usize, Retain>(RETAIN.address()?) };
        let mut handle = 0;
        // SAFETY: the place for the answer is ours.
        let result = unsafe { retain(&mut handle, device) };
        (result == SUCCESS).then_some(Self { device, handle })
    }
}

impl Drop for Retained {
    fn drop(&mut self) {
        static RELEASE: Function = Function::new(c"cuDevicePrimaryCtxRelease_v2");
        one_word(&RELEASE, self.device as usize);
    }
}

static PUSH: Function = Function::new(c"cuCtxPushCurrent_v2");
static POP: Function = Function::new(c"cuCtxPopCurrent_v2");

/// Calls a function that takes one word.
fn one_word(function: &Function, word: usize) -> Option<c_int> {
    // SAFETY: the functions that are called in this way take a number, a handle or a place for one.
    let call = unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(usize) -> c_int>(function.address()?) };
    // SAFETY: the word is what the function takes.
    Some(unsafe { call(word) })
}

fn graphs_of(device: c_int) -> Option<GraphMemory> {
    let [used, used_high, reserved, reserved_high] = [0, 1, 2, 3].map(|attribute| graph_attribute(device, attribute));
    Some(GraphMemory { used: used?, used_high: used_high?, reserved: reserved?, reserved_high: reserved_high? })
}

fn graph_attribute(device: c_int, attribute: c_int) -> Option<u64> {
    type GetAttribute = unsafe extern "C" fn(c_int, c_int, *mut u64) -> c_int;
    static GET: Function = Function::new(c"cuDeviceGetGraphMemAttribute");
    // SAFETY: the address is that of the function with this signature.
    let get = unsafe { std::mem::transmute::<usize, GetAttribute>(GET.address()?) };
    let mut value = 0;
    // SAFETY: all attributes have this size.
    let result = unsafe { get(device, attribute, &mut value) };
    (result == SUCCESS).then_some(value)
}

/// Bytes that a pool has from its device.
pub(super) fn reserved(pool: u64) -> Option<u64> {
    let _relaxed = Relaxed::enter()?;
    attribute(std::ptr::with_exposed_provenance_mut(pool as usize), RESERVED_CURRENT)
}

/// The segment that a block lies in, and its pool's if it is of one.
pub(super) fn segment(address: u64, of_pool: bool) -> Option<Told> {
    const POOL: c_int = 17;
    const MAPPING_SIZE: c_int = 18;
    const MAPPING_BASE: c_int = 19;
    let (start, size) = (of_address(address, MAPPING_BASE)?, of_address(address, MAPPING_SIZE)?);
    let pool = if of_pool { of_address(address, POOL).filter(|pool| *pool != 0)? } else { 0 };
    let pool_reserved = if pool == 0 { 0 } else { reserved(pool)? };
    Some(Told { address: start, size, pool, pool_reserved })
}

/// The size of the allocation that an address belongs to.
pub(super) fn range_size(address: u64) -> Option<u64> {
    const RANGE_SIZE: c_int = 12;
    of_address(address, RANGE_SIZE)
}

/// The device and the size of a block of a pool, as the pool counts it in what it has handed out: in multiples of
/// 512 bytes, as far as is known.
pub(super) fn pool_block(address: u64) -> Option<(u32, u64)> {
    const POOL: c_int = 17;
    of_address(address, POOL).filter(|pool| *pool != 0)?;
    Some((place::owner(address)?, range_size(address)?.checked_next_multiple_of(512)?))
}

/// An attribute of an address that is a word.
fn of_address(address: u64, attribute: c_int) -> Option<u64> {
    type Get = unsafe extern "C" fn(*mut u64, c_int, u64) -> c_int;
    static GET: Function = Function::new(c"cuPointerGetAttribute");
    // SAFETY: the address is that of the function with this signature.
    let get = unsafe { std::mem::transmute::<usize, Get>(GET.address()?) };
    let mut value = 0;
    // SAFETY: the attributes that are asked for have this size.
    let result = unsafe { get(&mut value, attribute, address) };
    (result == SUCCESS).then_some(value)
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
