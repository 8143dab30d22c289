//! Stand-in for cuBLASLt (`libcublasLt.so.13`): matrix products that leave their results unchanged.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

use memtrace_cusim_libraries::{EmptyKernel, OutArg, done, not_simulated};

include!(concat!(env!("OUT_DIR"), "/cublaslt.rs"));

const NOT_SUPPORTED: u32 = 15;
const INVALID_VALUE: u32 = 7;
const EXECUTION_FAILED: u32 = 13;

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

/// Launches an empty kernel with the matrices and the workspace.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the interface is cuBLASLt's")]
extern "C" fn cublasLtMatmul(
    _handle: u64,
    _product: u64,
    _alpha: u64,
    a: u64,
    _a_layout: u64,
    b: u64,
    _b_layout: u64,
    _beta: u64,
    c: u64,
    _c_layout: u64,
    d: u64,
    _d_layout: u64,
    _algorithm: u64,
    workspace: u64,
    _workspace_size: usize,
    stream: u64,
) -> u32 {
    static KERNEL: EmptyKernel = EmptyKernel::named("cublasLtMatmul_kernel");
    let result = KERNEL.launch(stream, &[a, b, c, d, workspace]);
    if result == 0 { 0 } else { EXECUTION_FAILED }
}

done! {
    fn cublasLtLoggerForceDisable;
    fn cublasLtLoggerOpenFile;
    fn cublasLtLoggerSetLevel;
    fn cublasLtLoggerSetMask;
    fn cublasLtDestroy;
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
