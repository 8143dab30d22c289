//! Stand-in for cuRAND (`libcurand.so.10`): generators that leave their output unchanged, so new memory stays zero.
//! Each function launches an empty kernel with its output, as the real library does.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

use std::sync::atomic::{AtomicU64, Ordering};

use memtrace_cusim_libraries::{EmptyKernel, OutArg, done, not_simulated};

include!(concat!(env!("OUT_DIR"), "/curand.rs"));

const NOT_SUPPORTED: u32 = 204;
const OUT_OF_RANGE: u32 = 104;
const LENGTH_NOT_MULTIPLE: u32 = 105;
const LAUNCH_FAILURE: u32 = 201;

#[unsafe(no_mangle)]
extern "C" fn curandCreateGenerator(generator: OutArg<u64>, _kind: u32) -> u32 {
    generator.set(1, OUT_OF_RANGE)
}

/// The stream of all generators.
static STREAM: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
extern "C" fn curandSetStream(_generator: u64, stream: u64) -> u32 {
    STREAM.store(stream, Ordering::Relaxed);
    0
}

/// Defines generators. `in` says of which number the count must be a multiple: normally distributed numbers are
/// generated in pairs.
macro_rules! generators {
    ($(fn $name:ident($($argument:ident: $type:ty),*) in $multiple:literal;)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(_generator: u64, out: u64, count: usize $(, $argument: $type)*) -> u32 {
            static KERNEL: EmptyKernel = EmptyKernel::named(concat!(stringify!($name), "_kernel"));
            if !count.is_multiple_of($multiple) {
                return LENGTH_NOT_MULTIPLE;
            }
            if KERNEL.launch(STREAM.load(Ordering::Relaxed), &[out]) == 0 { 0 } else { LAUNCH_FAILURE }
        }
    )* };
}

generators! {
    fn curandGenerateUniform() in 1;
    fn curandGenerateUniformDouble() in 1;
    fn curandGenerate() in 1;
    fn curandGenerateNormal(_mean: f32, _deviation: f32) in 2;
    fn curandGenerateNormalDouble(_mean: f64, _deviation: f64) in 2;
    fn curandGenerateLogNormal(_mean: f32, _deviation: f32) in 2;
    fn curandGenerateLogNormalDouble(_mean: f64, _deviation: f64) in 2;
}

done! {
    fn curandDestroyGenerator;
    fn curandSetPseudoRandomGeneratorSeed;
    fn curandSetGeneratorOffset;
}
