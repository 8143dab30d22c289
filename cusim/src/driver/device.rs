//! Devices: how many, what they are called.

use super::abi::Out;
use super::attributes::attribute;
use super::process::with;
use crate::code::{INVALID_DEVICE, INVALID_VALUE};

driver! {
    fn cuDeviceGetCount(count: Out<i32>) {
        with(|machine| count.set(machine.config.devices as i32))
    }

    fn cuDeviceGet(device: Out<i32>, ordinal: i32) {
        with(|machine| device.set(machine.device(ordinal)? as i32))
    }

    fn cuDeviceGetName(name: Out<u8>, length: i32, device: i32) {
        with(|machine| {
            machine.device(device)?;
            let room = usize::try_from(length).ok().and_then(|length| length.checked_sub(1)).ok_or(INVALID_VALUE)?;
            write_text(name, machine.config.name, room);
            Ok(())
        })
    }

    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32) {
        with(|machine| {
            let mut bytes = *b"memtrace-cusim\0\0";
            if let Some(last) = bytes.last_mut() {
                *last = machine.device(device)? as u8;
            }
            uuid.set(bytes)
        })
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) {
        with(|machine| {
            let device = machine.device(device)?;
            bytes.set(machine.memory(device).1 as usize)
        })
    }

    fn cuDeviceGetAttribute(value: Out<i32>, number: i32, device: i32) {
        with(|machine| {
            let device = machine.device(device)?;
            value.set(attribute(&machine.config, device, number))
        })
    }

    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) {
        with(|machine| {
            machine.device(device)?;
            major.set(machine.config.capability.0)?;
            minor.set(machine.config.capability.1)
        })
    }

    fn cuDeviceGetPCIBusId(name: Out<u8>, length: i32, device: i32) {
        with(|machine| {
            let bus = machine.device(device)? as u8 + 1;
            let mut text = *b"0000:00:00.0";
            for (place, digit) in [(5, bus >> 4), (6, bus & 15)] {
                text[place] = b"0123456789ABCDEF"[usize::from(digit)];
            }
            let room = usize::try_from(length).ok().filter(|room| *room > text.len()).ok_or(INVALID_VALUE)?;
            write_text(name, std::str::from_utf8(&text).unwrap_or_default(), room);
            Ok(())
        })
    }

    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) {
        with(|machine| {
            let (device, peer) = (machine.device(device)?, machine.device(peer)?);
            can.set(i32::from(device != peer))
        })
    }

    fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: i32, device: i32, peer: i32) {
        with(|machine| {
            if machine.device(device)? == machine.device(peer)? {
                return Err(INVALID_DEVICE);
            }
            value.set(i32::from(attribute == PEER_ACCESS))
        })
    }
}

same! {
    fn cuDeviceGetUuid_v2 = cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32);
}

const PEER_ACCESS: i32 = 2;

/// Writes text and a zero byte; at most `room` bytes of text.
fn write_text(to: Out<u8>, text: &str, room: usize) {
    let bytes = text.bytes().take(room).chain([0]);
    for (index, byte) in bytes.enumerate() {
        to.at(index).offer(byte);
    }
}
