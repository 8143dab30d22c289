//! Libraries: modules that belong to no context. A kernel and its function have the same handle.

use super::abi::{CallerText, Out};
use super::module::{check_function, ptx_of, read, text_of};
use super::process::{begin, with};
use super::thread::current;
use crate::code::{INVALID_HANDLE, NOT_FOUND};
use crate::faults::CallKind;

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
        kernel.set_with(|machine| machine.function(library, name.to_bytes()))
    }

    fn cuLibraryGetModule(module: Out<u64>, library: u64) {
        with(|machine| machine.modules.get(&library).map(|_| ()).ok_or(INVALID_HANDLE))?;
        module.set(library)
    }

    fn cuLibraryGetGlobal(_address: Out<u64>, _size: Out<usize>, _library: u64, _name: CallerText) => Err(NOT_FOUND);

    fn cuKernelGetFunction(function: Out<u64>, kernel: u64) {
        check_function(kernel)?;
        function.set(kernel)
    }
}
