//! Arguments of a kernel launch, read word by word.

use std::ffi::{c_uint, c_void};

use crate::hook::cuda::pointers::CallerPtr;
use crate::hook::cuda::types::{Handle, Stream};
use crate::record::uses::{Parameter, TensorMapWords, UseAccess};

/// The first fields of `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::hook::cuda) struct LaunchStart {
    sizes: [c_uint; 7],
    pub(in crate::hook::cuda) stream: Handle,
}

/// `kernelParams` and `extra` of a launch.
#[derive(Clone, Copy)]
pub(in crate::hook::cuda) struct Arguments {
    pub(in crate::hook::cuda) parameters: CallerPtr<*const c_void>,
    pub(in crate::hook::cuda) extra: CallerPtr<usize>,
}

pub(super) const TENSOR_MAP: usize = size_of::<TensorMapWords>();
const WORD: usize = size_of::<u64>();

pub(super) enum Argument {
    Word(u64, UseAccess),
    /// Bytes that may be a tensor map. If they are a whole parameter (true), they probably are.
    Block(TensorMapWords, bool),
}

pub(in crate::hook::cuda) fn stream_of(config: CallerPtr<LaunchStart>, per_thread: bool) -> Stream {
    config.read().map_or(Stream::NONE, |config| Stream::of(config.stream, per_thread))
}

impl Arguments {
    /// Arguments without `extra`.
    pub(in crate::hook::cuda) fn of(parameters: CallerPtr<*const c_void>) -> Self {
        Self { parameters, extra: CallerPtr::from_raw(std::ptr::null()) }
    }

    /// Calls `each` with every word of the arguments, and with all bytes that may be a tensor map. Returns
    /// false if the layout of the arguments is unknown.
    pub(super) fn each(self, layout: Option<&[Parameter]>, mut each: impl FnMut(Argument)) -> bool {
        if let Some((start, size)) = self.buffer() {
            words(start, size, UseAccess::Unknown, &mut each);
            return true;
        }
        if self.parameters.is_null() {
            return true;
        }
        let Some(layout) = layout else { return false };
        for (at, parameter) in layout.iter().enumerate() {
            let Some(value) = self.parameters.part::<*const c_void>(at * WORD).read() else { return false };
            let access = if parameter.is_const { UseAccess::Read } else { UseAccess::Unknown };
            words(CallerPtr::from_raw(value.cast()), parameter.size as usize, access, &mut each);
        }
        true
    }

    /// The buffer with all arguments, if `extra` names one.
    fn buffer(self) -> Option<(CallerPtr<u64>, usize)> {
        const END: usize = 0;
        const POINTER: usize = 1;
        const SIZE: usize = 2;
        let (mut start, mut size) = (None, None);
        for pair in 0..3 {
            let [key, value] = self.extra.part::<[usize; 2]>(pair * 2 * WORD).read()?;
            match key {
                END => break,
                POINTER => start = Some(CallerPtr::from_raw(std::ptr::with_exposed_provenance(value))),
                SIZE => size = CallerPtr::<usize>::from_raw(std::ptr::with_exposed_provenance(value)).read(),
                _ => return None,
            }
            if start.is_some() && size.is_some() {
                break;
            }
        }
        start.zip(size)
    }
}

fn words(start: CallerPtr<u64>, size: usize, access: UseAccess, each: &mut impl FnMut(Argument)) {
    for offset in (0..(size / WORD) * WORD).step_by(WORD) {
        if let Some(word) = start.part::<u64>(offset).read_unaligned() {
            each(Argument::Word(word, access));
        }
    }
    if size >= TENSOR_MAP {
        for offset in (0..=size - TENSOR_MAP).step_by(TENSOR_MAP / 2) {
            if let Some(block) = start.part(offset).read_unaligned() {
                each(Argument::Block(block, size == TENSOR_MAP));
            }
        }
    }
}
