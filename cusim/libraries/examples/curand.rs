//! A stand-in for cuRAND (`libcurand.so.10`): generators that leave memory as it is, which is zeros.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

use memtrace_cusim_libraries::{done, not_simulated};

include!(concat!(env!("OUT_DIR"), "/curand.rs"));

const NOT_SUPPORTED: u32 = 204;
const OUT_OF_RANGE: u32 = 104;
const LENGTH_NOT_MULTIPLE: u32 = 105;

#[unsafe(no_mangle)]
extern "C" fn curandCreateGenerator(generator: *mut u64, _kind: u32) -> u32 {
    let Some(generator) = std::ptr::NonNull::new(generator) else { return OUT_OF_RANGE };
    // SAFETY: the caller passes a pointer to a handle that it owns.
    unsafe { generator.write(1) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn curandGenerateNormal(_generator: u64, _out: u64, count: usize, _mean: f32, _deviation: f32) -> u32 {
    normal(count)
}

#[unsafe(no_mangle)]
extern "C" fn curandGenerateNormalDouble(_generator: u64, _out: u64, count: usize, _mean: f64, _deviation: f64) -> u32 {
    normal(count)
}

#[unsafe(no_mangle)]
extern "C" fn curandGenerateLogNormal(_generator: u64, _out: u64, count: usize, _mean: f32, _deviation: f32) -> u32 {
    normal(count)
}

#[unsafe(no_mangle)]
extern "C" fn curandGenerateLogNormalDouble(
    _generator: u64,
    _out: u64,
    count: usize,
    _mean: f64,
    _deviation: f64,
) -> u32 {
    normal(count)
}

/// Normal numbers come in pairs.
fn normal(count: usize) -> u32 {
    if count.is_multiple_of(2) { 0 } else { LENGTH_NOT_MULTIPLE }
}

done! {
    fn curandDestroyGenerator;
    fn curandSetStream;
    fn curandSetPseudoRandomGeneratorSeed;
    fn curandSetGeneratorOffset;
    fn curandGenerateUniform;
    fn curandGenerateUniformDouble;
    fn curandGenerate;
}
