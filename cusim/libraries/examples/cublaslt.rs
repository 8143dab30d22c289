//! Stand-in for cuBLASLt (`libcublasLt.so.13`): matrix products that leave their results unchanged.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

use memtrace_cusim_libraries::{OutArg, done, not_simulated};

include!(concat!(env!("OUT_DIR"), "/cublaslt.rs"));

const NOT_SUPPORTED: u32 = 15;
const INVALID_VALUE: u32 = 7;

macro_rules! creates {
    ($(fn $name:ident;)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(handle: OutArg<u64>) -> u32 {
            handle.set(1, INVALID_VALUE)
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

/// `cublasLtMatmulHeuristicResult_t`: algorithm, workspace, state, waves and reserved fields.
type Heuristic = [u64; 12];

/// Returns one algorithm, which needs no workspace: zeros.
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
    results: OutArg<Heuristic>,
    count: OutArg<i32>,
) -> u32 {
    // The caller has room for at least one result.
    results.set([0; 12], INVALID_VALUE) | count.set(1, INVALID_VALUE)
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
