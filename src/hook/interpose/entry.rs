//! The function that programs call instead of `dlsym`, in assembly.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(in crate::hook) use self::aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(in crate::hook) use self::x86_64::*;
