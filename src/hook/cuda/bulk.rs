//! Contexts that end take their memory with them, without a call for each block.
#![expect(unsafe_code, reason = "the driver is asked in C")]

use std::ffi::c_int;

use super::driver::{Function, SUCCESS};
use crate::record::memory::OwnVec;
use crate::record::{device_memory, guard, recorder};
use crate::snapshot::Device;

/// What is live before a context may end.
pub(super) type Before = OwnVec<(Device, OwnVec<(u64, u64)>)>;

pub(super) fn before() -> Before {
    let mut all = Before::new_in(crate::record::memory::System);
    if guard::state() & guard::OWN != 0 {
        return all;
    }
    let _own = guard::own_work();
    for device in recorder::devices().filter(|device| *device != Device::Cpu) {
        let live = device_memory::live(device);
        if !live.is_empty() && all.try_reserve(1).is_ok() {
            all.push((device, live));
        }
    }
    all
}

/// What the driver no longer knows was freed. What took its address meanwhile is somebody else's: the
/// position in the log tells them apart.
pub(super) fn after(result: c_int, before: Before) {
    if result != SUCCESS {
        return;
    }
    let _own = guard::own_work();
    for (device, mut live) in before {
        live.retain(|(address, _)| is_gone(*address));
        device_memory::freed_together(device, &live);
    }
}

fn is_gone(address: u64) -> bool {
    const INVALID_VALUE: c_int = 1;
    const MEMORY_TYPE: c_int = 2;
    static GET_ATTRIBUTE: Function = Function::new(c"cuPointerGetAttribute");
    let Some(function) = GET_ATTRIBUTE.address() else { return false };
    // SAFETY: the address is that of the function with this signature.
    let function =
        unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(*mut u64, c_int, u64) -> c_int>(function) };
    let mut kind = 0;
    // SAFETY: this attribute is a number of at most this size.
    unsafe { function(&mut kind, MEMORY_TYPE, address) == INVALID_VALUE }
}
