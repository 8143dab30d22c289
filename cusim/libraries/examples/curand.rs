//! Stand-in for cuRAND (`libcurand.so.10`): generators that leave memory unchanged, which is zeros.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "called through C")]

use memtrace_cusim_libraries::{OutArg, done, not_simulated};

include!(concat!(env!("OUT_DIR"), "/curand.rs"));

const NOT_SUPPORTED: u32 = 204;
const OUT_OF_RANGE: u32 = 104;
const LENGTH_NOT_MULTIPLE: u32 = 105;

#[unsafe(no_mangle)]
extern "C" fn curandCreateGenerator(generator: OutArg<u64>, _kind: u32) -> u32 {
    generator.set(1, OUT_OF_RANGE)
}

/// Normally distributed numbers are generated in pairs.
macro_rules! normal {
    ($(fn $name:ident($number:ty);)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(_generator: u64, _out: u64, count: usize, _mean: $number, _deviation: $number) -> u32 {
            if count.is_multiple_of(2) { 0 } else { LENGTH_NOT_MULTIPLE }
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
    fn curandSetStream;
    fn curandSetPseudoRandomGeneratorSeed;
    fn curandSetGeneratorOffset;
    fn curandGenerateUniform;
    fn curandGenerateUniformDouble;
    fn curandGenerate;
}
