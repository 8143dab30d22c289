//! Fills: `cuMemset…`.

use super::call::{in_context, unless_captured};
use super::process::{pause, with};
use crate::code::{Answer, INVALID_VALUE, demand};
use crate::faults::CallKind;
use crate::machine::node_type::FILL;
use crate::memory::Span;

driver! {
    fn cuMemsetD8_v2(to: u64, value: u8, count: usize) | cuMemsetD8_v2_ptds() =>
        in_context(|| fill(to, value, count));
    fn cuMemsetD16_v2(to: u64, value: u16, count: usize) | cuMemsetD16_v2_ptds() =>
        in_context(|| fill(to, value, count));
    fn cuMemsetD32_v2(to: u64, value: u32, count: usize) | cuMemsetD32_v2_ptds() =>
        in_context(|| fill(to, value, count));
    fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: u64) | cuMemsetD8Async_ptsz(stream) =>
        unless_captured(stream, FILL, || fill(to, value, count));
    fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: u64) | cuMemsetD16Async_ptsz(stream) =>
        unless_captured(stream, FILL, || fill(to, value, count));
    fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: u64) | cuMemsetD32Async_ptsz(stream) =>
        unless_captured(stream, FILL, || fill(to, value, count));

    fn cuMemsetD2D8_v2(to: u64, pitch: usize, value: u8, width: usize, height: usize) =>
        in_context(|| fill_rows(to, pitch, value, width, height));
    fn cuMemsetD2D8Async(to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64) =>
        unless_captured(stream, FILL, || fill_rows(to, pitch, value, width, height));

    fn cuMemsetD2D32_v2(to: u64, pitch: usize, value: u32, width: usize, height: usize) =>
        in_context(|| fill_rows(to, pitch, value, width, height));
    fn cuMemsetD2D32Async(to: u64, pitch: usize, value: u32, width: usize, height: usize, stream: u64) =>
        unless_captured(stream, FILL, || fill_rows(to, pitch, value, width, height));
}

fn fill<T: Copy + Default + PartialEq>(to: u64, value: T, count: usize) -> Answer {
    pause(CallKind::Copy);
    let bytes = count.checked_mul(size_of::<T>()).ok_or(INVALID_VALUE)? as u64;
    demand(to.is_multiple_of(align_of::<T>() as u64))?;
    let is_device = with(|machine| {
        machine.check(CallKind::Copy, bytes)?;
        machine.check_device_range(to, bytes)?;
        Ok(machine.device_of(to).is_some())
    })?;
    if is_device && value == T::default() {
        // Zeroing a range takes no host memory.
        Span::zero(to, bytes);
        return Ok(());
    }
    // SAFETY: the range lies in a live block, as checked above, or is host memory of the caller; the address is
    // aligned.
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
