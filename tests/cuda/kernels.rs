//! Launches, copies and fills for the tests, in all their forms.

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

use cudarc::driver::sys::{self, CUfunction, CUmodule, CUresult, CUstream};

/// Start of a fat binary, which is not read: its kernels have no known parameters.
pub(crate) const FAT_BINARY: &[u8] = &0xBA55_ED50_u32.to_le_bytes();

/// Loads PTX text, or the start of a fat binary.
pub(crate) fn load(text: &[u8]) -> CUmodule {
    load_binary(CString::new(text).unwrap().as_bytes_with_nul())
}

/// Loads a whole ELF file, or text that ends with a zero byte.
pub(crate) fn load_binary(image: &[u8]) -> CUmodule {
    let mut module = null_mut();
    // SAFETY: the output is a local variable; the image is as long as it says.
    check(unsafe { sys::cuModuleLoadData(&mut module, image.as_ptr().cast()) });
    module
}

pub(crate) fn function(module: CUmodule, name: &str) -> CUfunction {
    let (mut function, name) = (null_mut(), CString::new(name).unwrap());
    // SAFETY: the output is a local variable; the name ends with a zero byte.
    check(unsafe { sys::cuModuleGetFunction(&mut function, module, name.as_ptr()) });
    function
}

/// A kernel of a library, which can be launched as it is.
pub(crate) fn kernel_of_library(text: &str, name: &str) -> CUfunction {
    let (mut library, mut kernel, none) = (null_mut(), null_mut(), null_mut::<c_void>());
    let [text, name] = [text, name].map(|text| CString::new(text).unwrap());
    // SAFETY: the output is a local variable; the image ends with a zero byte; there are no options.
    check(unsafe {
        let image = text.as_ptr().cast();
        sys::cuLibraryLoadData(&mut library, image, none.cast(), none.cast(), 0, none.cast(), none.cast(), 0)
    });
    // SAFETY: the output is a local variable; the name ends with a zero byte.
    check(unsafe { sys::cuLibraryGetKernel(&mut kernel, library, name.as_ptr()) });
    kernel.cast()
}

pub(crate) fn check(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS);
}

/// The ways to launch a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaunchForm {
    Plain,
    Extended,
    Cooperative,
    Buffer,
    ExtendedBuffer,
}

pub(crate) const FORMS: [LaunchForm; 5] =
    [LaunchForm::Plain, LaunchForm::Extended, LaunchForm::Cooperative, LaunchForm::Buffer, LaunchForm::ExtendedBuffer];

/// Launches a kernel with these arguments, each a list of words.
pub(crate) fn launch(function: CUfunction, form: LaunchForm, arguments: &[Vec<u64>], stream: CUstream) {
    let mut pointers: Vec<*mut c_void> = arguments.iter().map(|words| words.as_ptr().cast_mut().cast()).collect();
    let mut buffer: Vec<u64> = arguments.concat();
    let mut size = buffer.len() * 8;
    // `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE`, and the end.
    let [is_pointer, is_size] = [1, 2].map(std::ptr::without_provenance_mut);
    let mut extra = [is_pointer, buffer.as_mut_ptr().cast(), is_size, (&raw mut size).cast(), null_mut()];
    let (pointers, extra) = match form {
        LaunchForm::Buffer | LaunchForm::ExtendedBuffer => (null_mut(), extra.as_mut_ptr()),
        _ => (pointers.as_mut_ptr(), null_mut()),
    };
    let config = sys::CUlaunchConfig {
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: stream,
        attrs: null_mut(),
        numAttrs: 0,
    };
    check(match form {
        // SAFETY: kernels do not run; the arguments are valid for the call.
        LaunchForm::Plain | LaunchForm::Buffer => unsafe {
            sys::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, pointers, extra)
        },
        // SAFETY: the same.
        LaunchForm::Cooperative => unsafe {
            sys::cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, pointers)
        },
        // SAFETY: the same.
        LaunchForm::Extended | LaunchForm::ExtendedBuffer => unsafe {
            sys::cuLaunchKernelEx(&config, function, pointers, extra)
        },
    });
}

/// Copies words to the device.
pub(crate) fn upload(to: u64, words: &[u64], stream: CUstream) {
    // SAFETY: the source is valid for the call, which is complete when it returns.
    check(unsafe { sys::cuMemcpyHtoDAsync_v2(to, words.as_ptr().cast(), words.len() * 8, stream) });
}

/// Copies bytes to the host.
pub(crate) fn download(from: u64, size: usize, stream: CUstream) {
    let mut bytes = vec![0u8; size];
    // SAFETY: the target is valid for the call, which is complete when it returns.
    check(unsafe { sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), from, size, stream) });
}

pub(crate) fn copy(to: u64, from: u64, size: usize, stream: CUstream) {
    // SAFETY: the driver checks the addresses.
    check(unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, size, stream) });
}

/// The same, by addresses whose kind the driver finds out.
pub(crate) fn copy_unified(to: u64, from: u64, size: usize, stream: CUstream) {
    // SAFETY: the driver checks the addresses.
    check(unsafe { sys::cuMemcpyAsync(to, from, size, stream) });
}

/// The same in one row.
pub(crate) fn copy_rows(to: u64, from: u64, size: usize, stream: CUstream) {
    let memory = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
    let region = sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: memory,
        srcHost: null(),
        srcDevice: from,
        srcArray: null_mut(),
        srcPitch: size,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: memory,
        dstHost: null_mut(),
        dstDevice: to,
        dstArray: null_mut(),
        dstPitch: size,
        WidthInBytes: size,
        Height: 1,
    };
    // SAFETY: the driver checks the addresses.
    check(unsafe { sys::cuMemcpy2DAsync_v2(&region, stream) });
}

pub(crate) fn fill(to: u64, size: usize, stream: CUstream) {
    // SAFETY: the driver checks the addresses.
    check(unsafe { sys::cuMemsetD8Async(to, 0, size, stream) });
}

pub(crate) fn fill_words(to: u64, words: usize, stream: CUstream) {
    // SAFETY: the driver checks the addresses.
    check(unsafe { sys::cuMemsetD32Async(to, 0, words, stream) });
}
