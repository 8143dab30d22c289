//! Models of allocators and their settings, with their names on the command line.

use std::fmt;
use std::str::FromStr;

use super::allocator::Allocator;
use super::driver_pool::DriverPool;
use super::pytorch::PyTorchAllocator;
use super::settings::{PyTorchSettings, unknown};
use crate::error::Error;
use crate::units::{parse_bytes, round};

/// A model of an allocator with its settings.
///
/// ```
/// # use memtrace_core::analysis::AllocatorModel;
/// let model: AllocatorModel = "pytorch,max_split=64MiB".parse()?;
/// let mut allocator = model.build(None);
/// let address = allocator.alloc(1000, 0, u64::MAX).expect("memory has no limit");
/// assert_eq!((allocator.used(), allocator.reserved()), (1024, 2 << 20));
/// allocator.free(address);
/// # Ok::<(), memtrace_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocatorModel {
    /// The driver's stream-ordered pool.
    DriverPool {
        /// Bytes that a synchronization leaves reserved; the driver's default is 0.
        threshold: u64,
    },
    /// PyTorch's caching allocator.
    PyTorch(PyTorchSettings),
}

impl AllocatorModel {
    /// The models that are compared if the user names none. The default of each allocator comes first.
    pub fn all() -> Vec<Self> {
        let pytorch = PyTorchSettings::default();
        let settings = [
            pytorch,
            PyTorchSettings { expandable: true, ..pytorch },
            PyTorchSettings { max_split: Some(128 << 20), ..pytorch },
            PyTorchSettings { roundup: 4, ..pytorch },
        ];
        let pools = [0, u64::MAX].map(|threshold| Self::DriverPool { threshold });
        pools.into_iter().chain(settings.map(Self::PyTorch)).collect()
    }

    /// Creates the allocator for a device with this much memory.
    pub fn build(self, memory: Option<u64>) -> Box<dyn Allocator> {
        match self {
            Self::DriverPool { threshold } => Box::new(DriverPool::new(threshold, memory)),
            Self::PyTorch(settings) => Box::new(PyTorchAllocator::new(settings)),
        }
    }

    /// Whether two models are the same allocator, with any settings.
    pub fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// How a program applies the setting.
    pub fn how(self) -> String {
        match self {
            Self::DriverPool { threshold } => {
                format!("cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, {threshold})")
            }
            Self::PyTorch(settings) => format!("PYTORCH_CUDA_ALLOC_CONF={}", settings.variable()),
        }
    }
}

fn threshold(value: &str) -> Result<u64, Error> {
    if value == "max" { Ok(u64::MAX) } else { parse_bytes(value) }
}

impl FromStr for AllocatorModel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let settings = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
        match name {
            "driver-pool" => {
                let mut found = 0;
                for (name, value) in settings {
                    found = if name == "threshold" {
                        threshold(value)?
                    } else {
                        return Err(unknown(name, "threshold=SIZE"));
                    };
                }
                Ok(Self::DriverPool { threshold: found })
            }
            "pytorch" => {
                let mut found = PyTorchSettings::default();
                settings.into_iter().try_for_each(|(name, value)| found.set(name, value))?;
                Ok(Self::PyTorch(found))
            }
            _ => Err(Error::allocator(format!("{name:?} is no allocator; there are driver-pool and pytorch"))),
        }
    }
}

impl fmt::Display for AllocatorModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: u64| if bytes == u64::MAX { "max".to_owned() } else { round(bytes).replace(' ', "") };
        match self {
            Self::DriverPool { threshold: 0 } => f.pad("driver-pool"),
            Self::DriverPool { threshold } => f.pad(&format!("driver-pool,threshold={}", size(*threshold))),
            Self::PyTorch(settings) => {
                let expandable = settings.expandable.then(|| ",expandable".to_owned());
                let max_split = settings.max_split.map(|bytes| format!(",max_split={}", size(bytes)));
                let roundup = (settings.roundup > 0).then(|| format!(",roundup={}", settings.roundup));
                let parts: String = [expandable, max_split, roundup].into_iter().flatten().collect();
                f.pad(&format!("pytorch{parts}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_printed_as_it_is_named() {
        for text in ["driver-pool", "driver-pool,threshold=64MiB", "driver-pool,threshold=max", "pytorch"] {
            assert_eq!(text.parse::<AllocatorModel>().unwrap().to_string(), text);
        }
        let all = "pytorch,expandable,max_split=128MiB,roundup=8";
        let model: AllocatorModel = all.parse().unwrap();
        assert_eq!(model.to_string(), all);
        let variable = "expandable_segments:True,max_split_size_mb:128,roundup_power2_divisions:8";
        assert_eq!(model.how(), format!("PYTORCH_CUDA_ALLOC_CONF={variable}"));
        assert_eq!(AllocatorModel::PyTorch(PyTorchSettings::of_variable(variable)), model);
    }

    #[test]
    fn what_an_allocator_does_not_have_is_refused() {
        for text in [
            "",
            "malloc",
            "driver-pool,expandable",
            "driver-pool,threshold=",
            "pytorch,threshold=0",
            "pytorch,max_split=20MiB",
            "pytorch,roundup=3",
            "pytorch,expandable=1",
        ] {
            assert!(text.parse::<AllocatorModel>().is_err(), "{text}");
        }
    }
}
