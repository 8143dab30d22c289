//! Attributes of addresses.

use super::abi::Out;
use super::process::with;
use crate::SimMachine;
use crate::code::{Answer, INVALID_VALUE};
use crate::history::BlockKind;

driver! {
    fn cuPointerGetAttribute(value: Out<u64>, attribute: u32, address: u64) =>
        with(|machine| attribute_of(machine, value, attribute, address));

    fn cuPointerGetAttributes(count: u32, attributes: Out<u32>, values: Out<Out<u64>>, address: u64) {
        with(|machine| {
            for index in 0..count as usize {
                let (attribute, value) = (attributes.at(index).get()?, values.at(index).get()?);
                if attribute_of(machine, value, attribute, address).is_err() {
                    zero(value, attribute)?;
                }
            }
            Ok(())
        })
    }
}

const CONTEXT: u32 = 1;
const MEMORY_TYPE: u32 = 2;
const DEVICE_POINTER: u32 = 3;
const HOST_POINTER: u32 = 4;
const BUFFER_ID: u32 = 7;
const IS_MANAGED: u32 = 8;
const DEVICE_ORDINAL: u32 = 9;
const RANGE_START: u32 = 11;
const RANGE_SIZE: u32 = 12;
const MAPPED: u32 = 13;
const POOL: u32 = 17;
const MAPPING_SIZE: u32 = 18;
const MAPPING_BASE: u32 = 19;
const BLOCK_ID: u32 = 20;

const HOST_MEMORY: u32 = 1;
const DEVICE_MEMORY: u32 = 2;

fn attribute_of(machine: &SimMachine, value: Out<u64>, attribute: u32, address: u64) -> Answer {
    let Some(block) = machine.block_around(address) else {
        return attribute_of_host(machine, value, attribute, address);
    };
    let (base, length, pool) = machine.segment_around(address).ok_or(INVALID_VALUE)?;
    let device = machine.device_of(address).ok_or(INVALID_VALUE)? as u32;
    let is_host = block.kind == BlockKind::HostPool;
    match attribute {
        CONTEXT => value.set(block.context),
        MEMORY_TYPE => value.cast().set(if is_host { HOST_MEMORY } else { DEVICE_MEMORY }),
        DEVICE_POINTER => value.set(address),
        HOST_POINTER if is_host || block.kind.is_managed() => value.set(address),
        BUFFER_ID | BLOCK_ID => value.set(block.id),
        IS_MANAGED => value.cast().set(u32::from(block.kind.is_managed())),
        // `CU_DEVICE_CPU`
        DEVICE_ORDINAL if is_host => value.cast().set(-1_i32),
        DEVICE_ORDINAL => value.cast().set(device),
        RANGE_START => value.set(block.address),
        RANGE_SIZE => value.set(block.size),
        MAPPED => value.cast().set(1_u32),
        POOL if block.kind.is_pooled() => value.set(pool),
        MAPPING_SIZE => value.set(length),
        MAPPING_BASE => value.set(base),
        _ => Err(INVALID_VALUE),
    }
}

fn attribute_of_host(machine: &SimMachine, value: Out<u64>, attribute: u32, address: u64) -> Answer {
    let block = machine.host_block(address).ok_or(INVALID_VALUE)?;
    match attribute {
        MEMORY_TYPE => value.cast().set(HOST_MEMORY),
        DEVICE_POINTER | HOST_POINTER => value.set(address),
        IS_MANAGED => value.cast().set(0_u32),
        RANGE_START => value.set(block.address),
        RANGE_SIZE => value.set(block.size),
        MAPPED => value.cast().set(1_u32),
        _ => Err(INVALID_VALUE),
    }
}

/// For attributes that do not apply, `cuPointerGetAttributes` writes zero, or -2 as the device.
fn zero(value: Out<u64>, attribute: u32) -> Answer {
    match attribute {
        MEMORY_TYPE | IS_MANAGED | MAPPED => value.cast().set(0_u32),
        DEVICE_ORDINAL => value.cast().set(-2_i32),
        _ => value.set(0),
    }
}
