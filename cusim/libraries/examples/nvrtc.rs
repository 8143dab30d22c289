//! Stand-in for NVRTC (`libnvrtc.so.13`): compiles programs to PTX in which kernels have names and parameters, but no
//! instructions.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

use std::ffi::{CStr, CString, c_char};
use std::fmt::Write as _;
use std::ptr::NonNull;

use memtrace_cusim_libraries::{OutArg, done, not_simulated};

include!(concat!(env!("OUT_DIR"), "/nvrtc.rs"));

const NOT_SUPPORTED: u32 = 4;
const INVALID_INPUT: u32 = 3;
const INVALID_PROGRAM: u32 = 4;
/// The code of a compilation error. Unbalanced brackets are the only error that is found.
const COMPILATION: u32 = 6;
const NO_SUCH_NAME: u32 = 10;
/// The architectures of CUDA 13.
const ARCHITECTURES: [i32; 12] = [75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121];

struct NvrtcProgram {
    source: String,
    /// The name expressions of the program. Each is also its own lowered (mangled) name here.
    names: Vec<CString>,
    ptx: CString,
}

fn program<'a>(handle: *mut NvrtcProgram) -> Option<&'a mut NvrtcProgram> {
    // SAFETY: the caller passes the handle of a live program, from one thread at a time.
    unsafe { handle.as_mut() }
}

/// Copies text with its zero byte.
fn copy(text: &CStr, place: *mut c_char) -> u32 {
    let bytes = text.to_bytes_with_nul();
    if place.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: the caller has room for the size that it queried.
    unsafe { place.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
    0
}

fn text<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller passes a C string or null.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) })
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcCreateProgram(handle: OutArg<*mut NvrtcProgram>, source: *const c_char) -> u32 {
    let Some(source) = text(source) else { return INVALID_INPUT };
    let source = source.to_string_lossy().into_owned();
    let program = Box::new(NvrtcProgram { source, names: Vec::new(), ptx: CString::default() });
    handle.set(Box::into_raw(program), INVALID_INPUT)
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcDestroyProgram(handle: *mut *mut NvrtcProgram) -> u32 {
    let Some(mut place) = NonNull::new(handle) else { return INVALID_INPUT };
    // SAFETY: the caller passes a pointer to a handle that it owns.
    let program = std::mem::replace(unsafe { place.as_mut() }, std::ptr::null_mut());
    if program.is_null() {
        return INVALID_PROGRAM;
    }
    // SAFETY: `nvrtcCreateProgram` created it, and the caller's handle is null from now on.
    drop(unsafe { Box::from_raw(program) });
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcCompileProgram(handle: *mut NvrtcProgram) -> u32 {
    let Some(program) = program(handle) else { return INVALID_PROGRAM };
    let count = |c: char| program.source.matches(c).count();
    if count('{') != count('}') || count('(') != count(')') {
        return COMPILATION;
    }
    program.ptx = CString::new(ptx(&program.source)).unwrap_or_default();
    0
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcAddNameExpression(handle: *mut NvrtcProgram, name: *const c_char) -> u32 {
    let (Some(program), Some(name)) = (program(handle), text(name)) else { return INVALID_INPUT };
    program.names.push(name.to_owned());
    0
}

/// Returns the name unchanged, because modules with C++ names accept every name.
#[unsafe(no_mangle)]
extern "C" fn nvrtcGetLoweredName(
    handle: *mut NvrtcProgram,
    name: *const c_char,
    lowered: OutArg<*const c_char>,
) -> u32 {
    let (Some(program), Some(name)) = (program(handle), text(name)) else { return INVALID_INPUT };
    let found = program.names.iter().find(|known| known.as_c_str() == name);
    found.map_or(NO_SUCH_NAME, |known| lowered.set(known.as_ptr(), INVALID_INPUT))
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetPTXSize(handle: *mut NvrtcProgram, size: OutArg<usize>) -> u32 {
    program(handle).map_or(INVALID_PROGRAM, |program| size.set(program.ptx.count_bytes() + 1, INVALID_INPUT))
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetPTX(handle: *mut NvrtcProgram, ptx: *mut c_char) -> u32 {
    program(handle).map_or(INVALID_PROGRAM, |program| copy(&program.ptx, ptx))
}

/// The simulated driver accepts PTX in place of machine code.
#[unsafe(no_mangle)]
extern "C" fn nvrtcGetCUBINSize(handle: *mut NvrtcProgram, size: OutArg<usize>) -> u32 {
    nvrtcGetPTXSize(handle, size)
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetCUBIN(handle: *mut NvrtcProgram, cubin: *mut c_char) -> u32 {
    nvrtcGetPTX(handle, cubin)
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetProgramLogSize(_handle: *mut NvrtcProgram, size: OutArg<usize>) -> u32 {
    size.set(1, INVALID_INPUT)
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetProgramLog(_handle: *mut NvrtcProgram, log: *mut c_char) -> u32 {
    copy(c"", log)
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetErrorString(result: u32) -> *const c_char {
    if result == 0 { c"NVRTC_SUCCESS".as_ptr() } else { c"NVRTC_ERROR".as_ptr() }
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcVersion(major: OutArg<i32>, minor: OutArg<i32>) -> u32 {
    major.set(13, INVALID_INPUT) | minor.set(0, INVALID_INPUT)
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetNumSupportedArchs(count: OutArg<i32>) -> u32 {
    count.set(ARCHITECTURES.len() as i32, INVALID_INPUT)
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetSupportedArchs(architectures: *mut i32) -> u32 {
    if architectures.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: the caller has room for the number that it queried.
    unsafe { architectures.copy_from_nonoverlapping(ARCHITECTURES.as_ptr(), ARCHITECTURES.len()) };
    0
}

done! {
    fn nvrtcInstallBundledHeaders;
    fn nvrtcRemoveBundledHeaders;
}

/// Kernels with their parameters. Unless `extern "C"` is around all kernels, the PTX has none, and the module accepts
/// every name.
fn ptx(source: &str) -> String {
    let mut ptx = ".version 9.0\n.target sm_80\n.address_size 64\n".to_owned();
    let parts: Vec<&str> = source.split("__global__").collect();
    let in_c = source.contains("extern \"C\" {") || source.contains("extern \"C\"{");
    let pairs = parts.iter().zip(parts.iter().skip(1));
    let kernels: Option<Vec<_>> = pairs
        .map(|(before, after)| {
            let is_c = in_c || before.trim_end().ends_with("extern \"C\"");
            kernel(after).filter(|_| is_c)
        })
        .collect();
    for (name, parameters) in kernels.unwrap_or_default() {
        let parameters: Vec<String> = (0..parameters).map(|n| format!(".param .u64 {name}_param_{n}")).collect();
        let _ = writeln!(ptx, ".visible .entry {name}({})\n{{\nret;\n}}", parameters.join(", "));
    }
    ptx
}

/// The name and the number of parameters of the kernel whose declaration follows `__global__`.
fn kernel(text: &str) -> Option<(&str, usize)> {
    let text = match text.split_once("__launch_bounds__") {
        Some((before, bounds)) if !before.contains(['(', '{', ';']) => bounds.split_once(')')?.1,
        _ => text,
    };
    let (name, rest) = text.split_once('(')?;
    let name = name.rsplit(|c: char| !c.is_alphanumeric() && c != '_').find(|word| !word.is_empty())?;
    let parameters = rest.split_once(')')?.0.trim();
    let count = if parameters.is_empty() || parameters == "void" { 0 } else { parameters.split(',').count() };
    Some((name, count))
}
