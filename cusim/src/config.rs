//! Configuration of a simulated machine, set in code or by environment variables.

use std::ffi::CStr;

use crate::faults::{Faults, Reuse};
use crate::meminfo;
use crate::units::bytes;

/// The contents of new memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// Zeros, which take no host memory.
    #[default]
    Zeros,
    /// Bytes 0xFF: NaN as floats, -1 as integers.
    Ones,
    /// Pseudorandom bytes, the same in every run.
    Random,
}

/// What a copy to the host returns if the memory has only zeros. Nothing was written there, or a real GPU's kernels
/// would have written other values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Results {
    /// The zeros.
    #[default]
    Zeros,
    /// 32-bit floats from 0.5 to 1, different at each copy.
    Floats,
    /// 32-bit integers from 11 to 14, different at each copy.
    Integers,
}

impl Results {
    /// The value of an element in a copy.
    pub(crate) fn value(self, copy: u64, element: u64) -> u32 {
        let random = (copy.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ element)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
            .rotate_left(31);
        match self {
            Self::Zeros => 0,
            Self::Floats => 0x3f00_0000 | (random as u32 & 0x7f_ffff),
            Self::Integers => 11 + (random % 4) as u32,
        }
    }
}

/// The configuration of a simulated machine.
#[derive(Clone, Debug)]
pub struct Config {
    /// The number of GPUs.
    pub devices: usize,
    /// The name of the GPUs.
    pub name: &'static str,
    /// Compute capability: major, minor.
    pub capability: (i32, i32),
    /// Bytes of memory of each GPU.
    pub memory: u64,
    /// Whether the GPUs use the host's memory.
    pub integrated: bool,
    /// Bytes of the page cache that integrated GPUs count as used; `None` for the host's page cache.
    pub page_cache: Option<u64>,
    /// Bytes of each GPU that other processes use.
    pub others: [u64; MAX_DEVICES],
    /// Bytes that each live context takes of its GPU.
    pub context: u64,
    /// Whether contexts take memory for the stacks of kernels.
    pub stacks: bool,
    /// Bytes that each loaded module or library takes.
    pub module: u64,
    /// Whether `cuMemAllocAsync` works.
    pub pools: bool,
    /// The contents of new memory.
    pub fill: Fill,
    /// The results that copies to the host return.
    pub results: Results,
    /// Injected faults.
    pub faults: Faults,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            devices: 1,
            name: "memtrace simulated GPU",
            capability: (9, 0),
            memory: 80 << 30,
            integrated: false,
            page_cache: None,
            others: [0; MAX_DEVICES],
            context: 0,
            stacks: false,
            module: 0,
            pools: true,
            fill: Fill::Zeros,
            results: Results::Zeros,
            faults: Faults::default(),
        }
    }
}

/// The maximal number of GPUs.
pub const MAX_DEVICES: usize = 16;

impl Config {
    /// Reads the variables `MEMTRACE_CUSIM_*`.
    ///
    /// # Errors
    /// The name of a variable whose value is not valid.
    pub fn from_env() -> Result<Self, &'static str> {
        let mut config = Self::default();
        read(c"MEMTRACE_CUSIM_DEVICES", &mut config.devices, |text| {
            text.parse().ok().filter(|count| *count <= MAX_DEVICES)
        })?;
        read(c"MEMTRACE_CUSIM_NAME", &mut config.name, Some)?;
        read(c"MEMTRACE_CUSIM_CAPABILITY", &mut config.capability, capability)?;
        read(c"MEMTRACE_CUSIM_INTEGRATED", &mut config.integrated, |text| one_of(text, &SWITCH))?;
        if config.integrated && meminfo::total() > 0 {
            config.memory = meminfo::total();
        }
        read(c"MEMTRACE_CUSIM_PAGE_CACHE", &mut config.page_cache, |text| size(text).map(Some))?;
        read(c"MEMTRACE_CUSIM_MEMORY", &mut config.memory, |text| size(text).filter(|memory| *memory > 0))?;
        read(c"MEMTRACE_CUSIM_OTHERS", &mut config.others, others)?;
        read(c"MEMTRACE_CUSIM_CONTEXT", &mut config.context, size)?;
        read(c"MEMTRACE_CUSIM_STACKS", &mut config.stacks, |text| one_of(text, &SWITCH))?;
        read(c"MEMTRACE_CUSIM_MODULE", &mut config.module, size)?;
        read(c"MEMTRACE_CUSIM_POOLS", &mut config.pools, |text| one_of(text, &SWITCH))?;
        read(c"MEMTRACE_CUSIM_FILL", &mut config.fill, |text| one_of(text, &FILLS))?;
        read(c"MEMTRACE_CUSIM_RESULTS", &mut config.results, |text| one_of(text, &RESULTS))?;
        read(c"MEMTRACE_CUSIM_FAULTS", &mut config.faults, Faults::parse)?;
        Ok(config)
    }

    pub(crate) fn reuses_at_once(&self) -> bool {
        self.faults.reuse == Reuse::Immediate
    }
}

/// Parses `9.0`, or `90` as nvcc writes it.
fn capability(text: &str) -> Option<(i32, i32)> {
    if let Some((major, minor)) = text.split_once('.') {
        return Some((major.parse().ok()?, minor.parse().ok()?));
    }
    let number: i32 = text.parse().ok()?;
    Some((number / 10, number % 10))
}

const SWITCH: [(&str, bool); 2] = [("0", false), ("1", true)];
const FILLS: [(&str, Fill); 3] = [("zeros", Fill::Zeros), ("ones", Fill::Ones), ("random", Fill::Random)];
const RESULTS: [(&str, Results); 3] =
    [("zeros", Results::Zeros), ("floats", Results::Floats), ("integers", Results::Integers)];

fn one_of<T: Copy>(text: &str, values: &[(&str, T)]) -> Option<T> {
    values.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
}

/// Parses bytes, at most 4 TiB.
fn size(text: &str) -> Option<u64> {
    bytes(text).filter(|size| *size <= 1 << 42)
}

/// Parses one size for all GPUs, or a list with one for each, from the first.
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

/// Reads a variable into `value` if it is set. The error is the variable's name.
fn read<T>(name: &'static CStr, value: &mut T, parse: impl Fn(&'static str) -> Option<T>) -> Result<(), &'static str> {
    if let Some(text) = variable(name).filter(|text| !text.is_empty()) {
        *value = parse(text).ok_or(name.to_str().unwrap_or_default())?;
    }
    Ok(())
}

/// A variable's value, without the heap allocation of `std::env::var`. A value that is not UTF-8 counts as not set.
pub(crate) fn variable(key: &CStr) -> Option<&'static str> {
    // SAFETY: `key` ends with a zero byte.
    let text = unsafe { libc::getenv(key.as_ptr()) };
    if text.is_null() {
        return None;
    }
    // SAFETY: `getenv` returns a C string; programs under test do not change these variables while they run.
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
