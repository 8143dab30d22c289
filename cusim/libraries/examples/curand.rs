//! Stand-in for cuRAND (`libcurand.so.10`): generators that leave memory unchanged, which is zeros. Each launches an
//! empty kernel with its output, as the real library does.

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

fn launch(kernel: &EmptyKernel, out: u64) -> u32 {
    if kernel.launch(STREAM.load(Ordering::Relaxed), &[out]) == 0 { 0 } else { LAUNCH_FAILURE }
}

macro_rules! uniform {
    ($(fn $name:ident;)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(_generator: u64, out: u64, _count: usize) -> u32 {
            static KERNEL: EmptyKernel = EmptyKernel::named(concat!(stringify!($name), "_kernel"));
            launch(&KERNEL, out)
        }
    )* };
}

uniform! {
    fn curandGenerateUniform;
    fn curandGenerateUniformDouble;
    fn curandGenerate;
}

/// Normally distributed numbers are generated in pairs.
macro_rules! normal {
    ($(fn $name:ident($number:ty);)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(_generator: u64, out: u64, count: usize, _mean: $number, _deviation: $number) -> u32 {
            static KERNEL: EmptyKernel = EmptyKernel::named(concat!(stringify!($name), "_kernel"));
            if count.is_multiple_of(2) { launch(&KERNEL, out) } else { LENGTH_NOT_MULTIPLE }
        }
    )* };
}

normal! {
    fn curandGenerateNormal(f32);
    fn curandGenerateNormalDouble(f64);
    fn curandGenerateLogNormal(f32);
    fn curandGenerateLogNormalDouble(f64);
}

done! {
    fn curandDestroyGenerator;
    fn curandSetPseudoRandomGeneratorSeed;
    fn curandSetGeneratorOffset;
}
