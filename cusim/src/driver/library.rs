//! Libraries: modules that belong to no context. Their kernels can be launched like functions, but no other call for
//! functions accepts a kernel. (`cuda.h`, `cuKernelGetFunction`, `cuLaunchKernel`: `f` is a function or a kernel.)

use super::abi::{CallerText, Out, answer};
use super::module::{
    KERNEL, check_function, cuFuncGetAttribute, cuFuncGetName, cuFuncGetParamInfo, launched, ptx_of, read, text_of,
};
use super::process::{begin, with};
use super::thread::current;
use crate::code::{Answer, INVALID_HANDLE, NOT_FOUND, demand_or};
use crate::faults::CallKind;

fn function_of(kernel: u64) -> Answer<u64> {
    demand_or(kernel & KERNEL != 0, INVALID_HANDLE)?;
    Ok(launched(kernel))
}

driver! {
    fn cuLibraryLoadData(
        library: Out<u64>, image: CallerText, _options: usize, _values: usize, _count: u32, _library_options: usize,
        _library_values: usize, _library_count: u32,
    ) {
        begin(CallKind::Module)?;
        let (context, ptx) = (current().unwrap_or(0), text_of(image)?);
        library.set_with(|machine| machine.load_module(0, context, ptx))
    }

    fn cuLibraryLoadFromFile(
        library: Out<u64>, path: CallerText, _options: usize, _values: usize, _count: u32, _library_options: usize,
        _library_values: usize, _library_count: u32,
    ) {
        begin(CallKind::Module)?;
        let (context, bytes) = (current().unwrap_or(0), read(path)?);
        library.set_with(|machine| machine.load_module(0, context, ptx_of(&bytes)))
    }

    fn cuLibraryUnload(library: u64) => with(|machine| machine.unload_module(library));

    fn cuLibraryGetKernel(kernel: Out<u64>, library: u64, name: CallerText) {
        let name = name.get()?;
        kernel.set_with(|machine| Ok(machine.function(library, name.to_bytes())? | KERNEL))
    }

    fn cuLibraryGetModule(module: Out<u64>, library: u64) {
        with(|machine| machine.modules.get(&library).map(|_| ()).ok_or(INVALID_HANDLE))?;
        module.set(library)
    }

    fn cuLibraryGetGlobal(_address: Out<u64>, _size: Out<usize>, _library: u64, _name: CallerText) => Err(NOT_FOUND);

    fn cuKernelGetFunction(function: Out<u64>, kernel: u64) {
        let handle = function_of(kernel)?;
        check_function(handle)?;
        function.set(handle)
    }

    fn cuKernelGetName(name: Out<u64>, kernel: u64) => answer(cuFuncGetName(name, function_of(kernel)?));

    fn cuKernelGetParamInfo(kernel: u64, index: usize, offset: Out<usize>, size: Out<usize>) =>
        answer(cuFuncGetParamInfo(function_of(kernel)?, index, offset, size));

    fn cuKernelGetAttribute(value: Out<i32>, attribute: u32, kernel: u64, device: i32) {
        with(|machine| machine.device(device).map(|_| ()))?;
        answer(cuFuncGetAttribute(value, attribute, function_of(kernel)?))
    }
}
