//! Modules, kernel functions and launches. Kernels do not run.

use super::abi::{CallerText, Out, answer};
use super::call::unless_captured;
use super::process::{begin, with};
use super::thread::{current, own_stream};
use crate::SimMachine;
use crate::code::{Answer, FILE_NOT_FOUND, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, demand};
use crate::faults::CallKind;
use crate::machine::node_type;

/// `CUlaunchConfig`, up to the stream.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: u64,
}

driver! {
    fn cuModuleLoadData(module: Out<u64>, image: CallerText) | cuModuleLoadFatBinary() {
        begin(CallKind::Module)?;
        let (context, ptx) = (current()?, text_of(image)?);
        module.set_with(|machine| machine.load_module(context, context, ptx))
    }

    fn cuModuleLoad(module: Out<u64>, path: CallerText) {
        begin(CallKind::Module)?;
        let context = current()?;
        let bytes = read(path)?;
        module.set_with(|machine| machine.load_module(context, context, ptx_of(&bytes)))
    }

    fn cuModuleLoadDataEx(module: Out<u64>, image: CallerText, _count: u32, _options: usize, _values: usize) =>
        answer(cuModuleLoadData(module, image));
    fn cuModuleUnload(module: u64) => with(|machine| machine.unload_module(module));

    fn cuModuleGetFunction(function: Out<u64>, module: u64, name: CallerText) {
        let name = name.get()?;
        function.set_with(|machine| machine.function(module, name.to_bytes()))
    }

    fn cuModuleGetGlobal_v2(_address: Out<u64>, _size: Out<usize>, _module: u64, _name: CallerText) => Err(NOT_FOUND);

    fn cuFuncGetAttribute(value: Out<i32>, attribute: u32, function: u64) {
        check_function(function)?;
        value.set(match attribute {
            0 => 1024,
            3 => with(|machine| machine.local_size(function))? as i32,
            4 => 32,
            5 | 6 => with(|machine| Ok(machine.config.capability.0 * 10 + machine.config.capability.1))?,
            _ => 0,
        })
    }

    fn cuFuncSetAttribute(function: u64, _attribute: u32, _value: i32) => check_function(function);
    fn cuFuncSetCacheConfig(function: u64, _config: u32) => check_function(function);
    fn cuFuncGetModule(module: Out<u64>, function: u64) =>
        module.set(with(|machine| Ok(machine.functions.get(&function).ok_or(INVALID_HANDLE)?.module))?);

    fn cuFuncGetName(name: Out<u64>, function: u64) =>
        name.set_with(|machine| machine.kernel_name(function));

    fn cuFuncGetParamInfo(function: u64, index: usize, offset: Out<usize>, size: Out<usize>) {
        let (at, bytes) = with(|machine| machine.parameter(function, index))?;
        size.offer(bytes);
        offset.set(at)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<i32>, function: u64, _size: i32, _shared: usize) {
        check_function(function)?;
        blocks.set(2)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<i32>, function: u64, size: i32, shared: usize, _flags: u32,
    ) =>
        answer(cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, size, shared));

    fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<i32>, block: Out<i32>, function: u64, _shared_of: usize, _shared: usize, _limit: i32,
    ) {
        check_function(function)?;
        grid.set(132)?;
        block.set(1024)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<i32>, block: Out<i32>, function: u64, shared_of: usize, shared: usize, limit: i32, _flags: u32,
    ) =>
        answer(cuOccupancyMaxPotentialBlockSize(grid, block, function, shared_of, shared, limit));

    fn cuLaunchKernelEx(launch: Out<LaunchConfig>, function: u64, _arguments: usize, _extra: usize) {
        let LaunchConfig { grid, block, stream, .. } = launch.get()?;
        start(function, grid, block, stream)
    }

    fn cuLaunchKernelEx_ptsz(launch: Out<LaunchConfig>, function: u64, _arguments: usize, _extra: usize) {
        let LaunchConfig { grid, block, stream, .. } = launch.get()?;
        start(function, grid, block, own_stream(stream))
    }

    /// A cooperative launch has no argument `extra`, so this argument is never read.
    fn cuLaunchKernel(
        function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, _shared: u32,
        stream: u64, _arguments: usize, _extra: usize,
    ) | cuLaunchKernel_ptsz(stream) | cuLaunchCooperativeKernel() | cuLaunchCooperativeKernel_ptsz(stream) =>
        start(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], stream);
}

/// The handle of a library's kernel is the handle of its function with this bit set.
pub(super) const KERNEL: u64 = 8;

/// The function that a launch of this function or kernel runs.
pub(super) fn launched(function: u64) -> u64 {
    function & !KERNEL
}

fn start(function: u64, grid: [u32; 3], block: [u32; 3], stream: u64) -> Answer {
    begin(CallKind::Launch)?;
    let local = with(|machine| machine.local_size(launched(function)))?;
    let threads = block.iter().try_fold(1, |product: u32, side| product.checked_mul(*side)).ok_or(INVALID_VALUE)?;
    demand(!grid.contains(&0) && (1..=1024).contains(&threads))?;
    unless_captured(stream, node_type::KERNEL, || with(|machine| raise_stacks(machine, stream, local)))
}

/// Makes the threads' stacks as large as the launched kernel needs. Like the driver, it never makes them smaller.
fn raise_stacks(machine: &mut SimMachine, stream: u64, local: u64) -> Answer {
    let context = machine.context_of(stream, current())?;
    if machine.context(context)?.stack < local { machine.set_stack(context, local) } else { Ok(()) }
}

pub(super) fn check_function(function: u64) -> Answer {
    with(|machine| machine.functions.get(&function).map(|_| ()).ok_or(INVALID_HANDLE))
}

/// The PTX at an address, or nothing for a binary.
pub(super) fn text_of<'a>(image: CallerText) -> Answer<&'a [u8]> {
    if is_binary(image.start()?) { Ok(&[]) } else { Ok(image.get()?.to_bytes()) }
}

pub(super) fn read(path: CallerText) -> Answer<Vec<u8>> {
    let path = path.get()?.to_str().map_err(|_| FILE_NOT_FOUND)?;
    std::fs::read(path).map_err(|_| FILE_NOT_FOUND)
}

/// The PTX in a file, or nothing for a binary.
pub(super) fn ptx_of(file: &[u8]) -> &[u8] {
    let start = file.first_chunk().copied().unwrap_or_default();
    if is_binary(start) { &[] } else { file }
}

/// Whether the data is an ELF file or a fat binary, which has no PTX in plain text.
fn is_binary(start: [u8; 4]) -> bool {
    start == *b"\x7fELF" || start == 0xBA55_ED50_u32.to_le_bytes()
}
