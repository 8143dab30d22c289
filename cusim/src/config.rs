//! What is simulated: given in code, or by the environment of the program.

use std::ffi::CStr;

use crate::faults::{Faults, Reuse};
use crate::units::bytes;

/// What new memory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// Zeros, which cost no host memory.
    #[default]
    Zeros,
    /// Bytes of 0xFF: NaN as floats, -1 as integers.
    Ones,
    /// Bytes that look random and are the same in every run.
    Random,
}

/// A machine to simulate.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many GPUs there are.
    pub devices: usize,
    /// What `cuDeviceGetName` says.
    pub name: &'static str,
    /// Compute capability: major, minor.
    pub capability: (i32, i32),
    /// Bytes of memory of each GPU.
    pub memory: u64,
    /// Bytes of each GPU that other processes have.
    pub others: [u64; MAX_DEVICES],
    /// Bytes that each live context takes of its GPU.
    pub context: u64,
    /// Bytes that each loaded module or library takes.
    pub module: u64,
    /// Whether `cuMemAllocAsync` works.
    pub pools: bool,
    /// What new memory holds.
    pub fill: Fill,
    /// What goes wrong.
    pub faults: Faults,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            devices: 1,
            name: "memtrace simulated GPU",
            capability: (9, 0),
            memory: 80 << 30,
            others: [0; MAX_DEVICES],
            context: 0,
            module: 0,
            pools: true,
            fill: Fill::Zeros,
            faults: Faults::default(),
        }
    }
}

/// The most GPUs that a machine has.
pub const MAX_DEVICES: usize = 16;

impl Config {
    /// As `MEMTRACE_CUSIM_*` says.
    ///
    /// # Errors
    /// The variable whose value makes no sense.
    pub fn from_env() -> Result<Self, &'static str> {
        let mut config = Self::default();
        read("MEMTRACE_CUSIM_DEVICES", c"MEMTRACE_CUSIM_DEVICES", &mut config.devices, |text| {
            text.parse().ok().filter(|count| *count <= MAX_DEVICES)
        })?;
        read("MEMTRACE_CUSIM_NAME", c"MEMTRACE_CUSIM_NAME", &mut config.name, Some)?;
        read("MEMTRACE_CUSIM_CAPABILITY", c"MEMTRACE_CUSIM_CAPABILITY", &mut config.capability, capability)?;
        read("MEMTRACE_CUSIM_MEMORY", c"MEMTRACE_CUSIM_MEMORY", &mut config.memory, |text| {
            size(text).filter(|memory| *memory > 0)
        })?;
        read("MEMTRACE_CUSIM_OTHERS", c"MEMTRACE_CUSIM_OTHERS", &mut config.others, others)?;
        read("MEMTRACE_CUSIM_CONTEXT", c"MEMTRACE_CUSIM_CONTEXT", &mut config.context, size)?;
        read("MEMTRACE_CUSIM_MODULE", c"MEMTRACE_CUSIM_MODULE", &mut config.module, size)?;
        read("MEMTRACE_CUSIM_POOLS", c"MEMTRACE_CUSIM_POOLS", &mut config.pools, |text| match text {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        })?;
        read("MEMTRACE_CUSIM_FILL", c"MEMTRACE_CUSIM_FILL", &mut config.fill, fill)?;
        read("MEMTRACE_CUSIM_FAULTS", c"MEMTRACE_CUSIM_FAULTS", &mut config.faults, Faults::parse)?;
        Ok(config)
    }

    pub(crate) fn reuses_at_once(&self) -> bool {
        self.faults.reuse == Reuse::Immediate
    }
}

/// `9.0`, or `90` as nvcc writes it.
fn capability(text: &str) -> Option<(i32, i32)> {
    if let Some((major, minor)) = text.split_once('.') {
        return Some((major.parse().ok()?, minor.parse().ok()?));
    }
    let number: i32 = text.parse().ok()?;
    Some((number / 10, number % 10))
}

/// Bytes: no more than any GPU has.
fn size(text: &str) -> Option<u64> {
    bytes(text).filter(|size| *size <= 1 << 42)
}

/// One size for all GPUs, or one for each from the first on.
fn others(text: &str) -> Option<[u64; MAX_DEVICES]> {
    if let Some(all) = size(text) {
        return Some([all; MAX_DEVICES]);
    }
    let mut others = [0; MAX_DEVICES];
    for (index, part) in text.split(',').enumerate() {
        *others.get_mut(index)? = size(part)?;
    }
    Some(others)
}

fn fill(text: &str) -> Option<Fill> {
    match text {
        "zeros" => Some(Fill::Zeros),
        "ones" => Some(Fill::Ones),
        "random" => Some(Fill::Random),
        _ => None,
    }
}

/// Reads a variable into `value` if it is set.
fn read<T>(
    name: &'static str,
    key: &CStr,
    value: &mut T,
    parse: impl Fn(&'static str) -> Option<T>,
) -> Result<(), &'static str> {
    let Some(text) = variable(key).filter(|text| !text.is_empty()) else { return Ok(()) };
    *value = parse(text).ok_or(name)?;
    Ok(())
}

/// A variable's text, without the copy on the heap that `std::env::var` makes. Text that is no UTF-8 counts
/// as not set.
pub(crate) fn variable(key: &CStr) -> Option<&'static str> {
    // SAFETY: `key` ends with a zero byte.
    let text = unsafe { libc::getenv(key.as_ptr()) };
    if text.is_null() {
        return None;
    }
    // SAFETY: `getenv` gives a string that ends with a zero byte; programs under test do not change
    // these variables while they run.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_have_the_same_of_each_device_or_not() {
        assert_eq!(others("1GiB"), Some([1 << 30; MAX_DEVICES]));
        let read = others("2 MiB,0,1KiB").unwrap();
        assert_eq!((read[..3].to_vec(), read[3..].iter().sum()), (vec![2 << 20, 0, 1024], 0_u64));
        assert_eq!((others("1GiB,"), others(&"1,".repeat(20))), (None, None));
    }
}
