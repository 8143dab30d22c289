//! Settings of PyTorch's caching allocator: on the command line, and in `PYTORCH_CUDA_ALLOC_CONF`.

use crate::error::Error;
use crate::units::parse_bytes;

/// Size of a segment of large blocks.
pub(super) const LARGE_SEGMENT: u64 = 20 << 20;

/// Settings of PyTorch's caching allocator, as in `PYTORCH_CUDA_ALLOC_CONF`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PyTorchSettings {
    /// `expandable_segments`.
    pub expandable: bool,
    /// `max_split_size_mb`, in bytes.
    pub max_split: Option<u64>,
    /// `roundup_power2_divisions`, a power of two. With 0, sizes are only rounded up to multiples of 512 B.
    pub roundup: u64,
}

impl PyTorchSettings {
    /// The value for `PYTORCH_CUDA_ALLOC_CONF`.
    pub(super) fn variable(self) -> String {
        let expandable = self.expandable.then(|| "expandable_segments:True".to_owned());
        let max_split = self.max_split.map(|bytes| format!("max_split_size_mb:{}", bytes >> 20));
        let roundup = (self.roundup > 0).then(|| format!("roundup_power2_divisions:{}", self.roundup));
        [expandable, max_split, roundup].into_iter().flatten().collect::<Vec<_>>().join(",")
    }

    /// The settings in a value of the variable. Settings that the model does not have are ignored.
    pub(super) fn of_variable(value: &str) -> Self {
        let number = |text: &str| text.parse::<u64>().ok();
        let mut found = Self::default();
        for (name, value) in value.split(',').filter_map(|setting| setting.split_once(':')) {
            match name.trim() {
                "expandable_segments" => found.expandable = value.trim().eq_ignore_ascii_case("true"),
                "max_split_size_mb" => found.max_split = number(value.trim()).and_then(|mib| mib.checked_mul(1 << 20)),
                "roundup_power2_divisions" => {
                    found.roundup = number(value.trim()).filter(|divisions| divisions.is_power_of_two()).unwrap_or(0);
                }
                _ => {}
            }
        }
        found
    }

    /// Whether a value of the variable has divisions for each range of sizes, as `roundup_power2_divisions:[256:1,>:4]`.
    pub(super) fn has_list(value: &str) -> bool {
        value.split_once("roundup_power2_divisions:").is_some_and(|(_, value)| value.trim_start().starts_with('['))
    }

    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        match name {
            "expandable" if value.is_empty() => self.expandable = true,
            "max_split" => self.max_split = Some(max_split(value)?),
            "roundup" => self.roundup = divisions(value)?,
            _ => return Err(unknown(name, "expandable, max_split=SIZE and roundup=N")),
        }
        Ok(())
    }
}

/// Parses `max_split`. PyTorch accepts only whole MiB, and only more than the size of a large segment.
fn max_split(value: &str) -> Result<u64, Error> {
    let bytes = parse_bytes(value)?;
    let is_allowed = bytes > LARGE_SEGMENT && bytes.is_multiple_of(1 << 20);
    is_allowed.then_some(bytes).ok_or_else(|| Error::allocator("max_split is a number of MiB above 20MiB".to_owned()))
}

fn divisions(value: &str) -> Result<u64, Error> {
    let divisions = value.parse().ok().filter(|divisions: &u64| divisions.is_power_of_two() && *divisions <= 64);
    divisions.ok_or_else(|| Error::allocator("roundup is a power of two up to 64".to_owned()))
}

pub(super) fn unknown(name: &str, known: &str) -> Error {
    Error::allocator(format!("{name:?} is no setting of this allocator; there are {known}"))
}
