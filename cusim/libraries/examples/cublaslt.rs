//! A stand-in for cuBLASLt (`libcublasLt.so.13`): products that leave their results as they are.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

use std::ptr::NonNull;

use memtrace_cusim_libraries::{done, not_simulated};

include!(concat!(env!("OUT_DIR"), "/cublaslt.rs"));

const NOT_SUPPORTED: u32 = 15;
const INVALID_VALUE: u32 = 7;

/// Writes a handle, of which one is like the other.
fn create(handle: *mut u64) -> u32 {
    let Some(handle) = NonNull::new(handle) else { return INVALID_VALUE };
    // SAFETY: the caller passes a pointer to a handle that it owns.
    unsafe { handle.write(1) };
    0
}

macro_rules! creates {
    ($(fn $name:ident;)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(handle: *mut u64) -> u32 {
            create(handle)
        }
    )* };
}

creates! {
    fn cublasLtCreate;
    fn cublasLtMatmulDescCreate;
    fn cublasLtMatmulPreferenceCreate;
    fn cublasLtMatrixLayoutCreate;
    fn cublasLtMatrixTransformDescCreate;
}

/// `cublasLtMatmulHeuristicResult_t`: the algorithm, its workspace, its state, its waves and what is reserved.
type Heuristic = [u64; 12];

/// There is one algorithm, which needs no workspace and may be used: zeros.
#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: u64,
    _product: u64,
    _a: u64,
    _b: u64,
    _c: u64,
    _d: u64,
    _preference: u64,
    _requested: i32,
    results: *mut Heuristic,
    count: *mut i32,
) -> u32 {
    let (Some(results), Some(count)) = (NonNull::new(results), NonNull::new(count)) else { return INVALID_VALUE };
    // SAFETY: the caller has room for as many as it asks for, of which there is one at least.
    unsafe { results.write([0; 12]) };
    // SAFETY: the caller passes a pointer to a number that it owns.
    unsafe { count.write(1) };
    0
}

done! {
    fn cublasLtLoggerForceDisable;
    fn cublasLtLoggerOpenFile;
    fn cublasLtLoggerSetLevel;
    fn cublasLtLoggerSetMask;
    fn cublasLtDestroy;
    fn cublasLtMatmul;
    fn cublasLtMatmulDescDestroy;
    fn cublasLtMatmulDescSetAttribute;
    fn cublasLtMatmulPreferenceDestroy;
    fn cublasLtMatmulPreferenceSetAttribute;
    fn cublasLtMatrixLayoutDestroy;
    fn cublasLtMatrixLayoutSetAttribute;
    fn cublasLtMatrixTransform;
    fn cublasLtMatrixTransformDescDestroy;
    fn cublasLtMatrixTransformDescSetAttribute;
}
