//! Fills: `cuMemset…`.

use super::copy::is_captured;
use super::process::{pause, with};
use super::thread::current;
use crate::code::{Answer, INVALID_VALUE};
use crate::faults::Call;
use crate::machine::node_type;
use crate::memory::Span;

driver! {
    fn cuMemsetD8_v2(to: u64, value: u8, count: usize) {
        current()?;
        fill(to, value, count)
    }

    fn cuMemsetD16_v2(to: u64, value: u16, count: usize) {
        current()?;
        fill(to, value, count)
    }

    fn cuMemsetD32_v2(to: u64, value: u32, count: usize) {
        current()?;
        fill(to, value, count)
    }

    fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: u64) {
        if is_captured(stream, node_type::FILL)? { Ok(()) } else { fill(to, value, count) }
    }

    fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: u64) {
        if is_captured(stream, node_type::FILL)? { Ok(()) } else { fill(to, value, count) }
    }

    fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: u64) {
        if is_captured(stream, node_type::FILL)? { Ok(()) } else { fill(to, value, count) }
    }

    fn cuMemsetD2D8_v2(to: u64, pitch: usize, value: u8, width: usize, height: usize) {
        current()?;
        fill_rows(to, pitch, value, width, height)
    }

    fn cuMemsetD2D8Async(to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64) {
        if is_captured(stream, node_type::FILL)? { Ok(()) } else { fill_rows(to, pitch, value, width, height) }
    }

    fn cuMemsetD2D32_v2(to: u64, pitch: usize, value: u32, width: usize, height: usize) {
        current()?;
        fill_rows(to, pitch, value, width, height)
    }

    fn cuMemsetD2D32Async(to: u64, pitch: usize, value: u32, width: usize, height: usize, stream: u64) {
        if is_captured(stream, node_type::FILL)? { Ok(()) } else { fill_rows(to, pitch, value, width, height) }
    }
}

per_thread! {
    fn cuMemsetD8Async_ptsz = cuMemsetD8Async(to: u64, value: u8, count: usize; stream);
    fn cuMemsetD16Async_ptsz = cuMemsetD16Async(to: u64, value: u16, count: usize; stream);
    fn cuMemsetD32Async_ptsz = cuMemsetD32Async(to: u64, value: u32, count: usize; stream);
}

same! {
    fn cuMemsetD8_v2_ptds = cuMemsetD8_v2(to: u64, value: u8, count: usize);
    fn cuMemsetD16_v2_ptds = cuMemsetD16_v2(to: u64, value: u16, count: usize);
    fn cuMemsetD32_v2_ptds = cuMemsetD32_v2(to: u64, value: u32, count: usize);
}

fn fill<T: Copy + Default + PartialEq>(to: u64, value: T, count: usize) -> Answer {
    pause(Call::Copy);
    let bytes = count.checked_mul(size_of::<T>()).ok_or(INVALID_VALUE)? as u64;
    if !to.is_multiple_of(align_of::<T>() as u64) {
        return Err(INVALID_VALUE);
    }
    let is_device = with(|machine| {
        machine.check_copy(bytes)?;
        machine.check_device_range(to, bytes)?;
        Ok(machine.device_of(to).is_some())
    })?;
    if is_device && value == T::default() {
        // Zeros cost no host memory.
        Span::zero(to, bytes);
        return Ok(());
    }
    // SAFETY: the range lies in a live block, checked above, or is host memory that the caller vouches for;
    // the address is aligned.
    unsafe { std::slice::from_raw_parts_mut(to as *mut T, count) }.fill(value);
    Ok(())
}

fn fill_rows<T: Copy + Default + PartialEq>(to: u64, pitch: usize, value: T, width: usize, height: usize) -> Answer {
    for row in 0..height {
        let offset = row.checked_mul(pitch).ok_or(INVALID_VALUE)? as u64;
        fill(to.checked_add(offset).ok_or(INVALID_VALUE)?, value, width)?;
    }
    Ok(())
}
