//! Devices: their number, names and attributes.

use super::abi::Out;
use super::attributes::attribute;
use super::process::{with, with_device};
use crate::code::{INVALID_DEVICE, INVALID_VALUE, demand_or};

driver! {
    fn cuDeviceGetCount(count: Out<i32>) => with(|machine| count.set(machine.config.devices as i32));
    fn cuDeviceGet(device: Out<i32>, ordinal: i32) => with(|machine| device.set(machine.device(ordinal)? as i32));

    fn cuDeviceGetName(name: Out<u8>, length: i32, device: i32) {
        with_device(device, |machine, _| {
            let room = usize::try_from(length).ok().and_then(|length| length.checked_sub(1)).ok_or(INVALID_VALUE)?;
            write_text(name, machine.config.name, room);
            Ok(())
        })
    }

    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32) | cuDeviceGetUuid_v2() {
        with_device(device, |_, device| {
            let mut bytes = *b"memtrace-cusim\0\0";
            bytes[15] = device as u8;
            uuid.set(bytes)
        })
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) =>
        with_device(device, |machine, device| bytes.set(machine.memory(device).1 as usize));
    fn cuDeviceGetAttribute(value: Out<i32>, number: i32, device: i32) =>
        with_device(device, |machine, device| value.set(attribute(&machine.config, device, number)));

    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) {
        with_device(device, |machine, _| {
            major.set(machine.config.capability.0)?;
            minor.set(machine.config.capability.1)
        })
    }

    fn cuDeviceGetPCIBusId(name: Out<u8>, length: i32, device: i32) {
        with_device(device, |_, device| {
            let bus = device as u8 + 1;
            let mut text = *b"0000:00:00.0";
            for (position, digit) in [(5, bus >> 4), (6, bus & 15)] {
                text[position] = b"0123456789ABCDEF"[usize::from(digit)];
            }
            let room = usize::try_from(length).ok().filter(|room| *room > text.len()).ok_or(INVALID_VALUE)?;
            write_text(name, std::str::from_utf8(&text).unwrap_or_default(), room);
            Ok(())
        })
    }

    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) =>
        with_device(device, |machine, device| can.set(i32::from(device != machine.device(peer)?)));

    fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: i32, device: i32, peer: i32) {
        with_device(device, |machine, device| {
            demand_or(device != machine.device(peer)?, INVALID_DEVICE)?;
            value.set(i32::from(attribute == PEER_ACCESS))
        })
    }
}

const PEER_ACCESS: i32 = 2;

/// Writes at most `room` bytes of text, and a zero byte.
fn write_text(to: Out<u8>, text: &str, room: usize) {
    let bytes = text.bytes().take(room).chain([0]);
    for (index, byte) in bytes.enumerate() {
        to.at(index).offer(byte);
    }
}
