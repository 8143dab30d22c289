//! Values of arguments: moments, devices, sizes.

use memtrace_core::analysis::Moment;
use memtrace_core::{Device, parse_bytes};

/// Parses `peak`, `end`, `1.5` (seconds), `step:3`, `scope:forward`.
pub(crate) fn parse(text: &str) -> Result<Moment, String> {
    if let Some(name) = text.strip_prefix("scope:") {
        return Ok(Moment::Scope(name.to_owned()));
    }
    if let Some(number) = text.strip_prefix("step:") {
        return number.parse().map(Moment::Step).map_err(|_| format!("{number:?} is no number of a step"));
    }
    match (text, text.strip_suffix('s').unwrap_or(text).trim_end().parse::<f64>()) {
        ("peak", _) => Ok(Moment::Peak),
        ("end", _) => Ok(Moment::End),
        ("all", _) => Ok(Moment::Allocated),
        (_, Ok(seconds)) if seconds >= 0.0 && seconds.is_finite() => Ok(Moment::Time((seconds * 1e9) as u64)),
        _ => Err("write peak, end, all, a time in seconds such as 1.5, step:3 or scope:forward".to_owned()),
    }
}

pub(crate) fn device(text: &str) -> Result<Device, String> {
    match text {
        "cpu" => Ok(Device::Cpu),
        "pinned" => Ok(Device::Pinned),
        "managed" => Ok(Device::Managed),
        "imported" => Ok(Device::Imported),
        "cuda" => Ok(Device::Cuda(0)),
        _ => {
            let ordinal = text.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok());
            ordinal.map(Device::Cuda).ok_or_else(|| "write cpu, cuda:0, pinned, managed or imported".to_owned())
        }
    }
}

pub(crate) fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|error| error.to_string())
}

/// Parses `1%` or `1`.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    number
        .ok()
        .filter(|number| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| "write a number such as 1%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_words_times_steps_and_scopes() {
        let cases = [
            ("peak", Moment::Peak),
            ("end", Moment::End),
            ("1.5", Moment::Time(1_500_000_000)),
            ("2s", Moment::Time(2_000_000_000)),
            ("step:3", Moment::Step(3)),
            ("scope:a:b", Moment::Scope("a:b".to_owned())),
        ];
        cases.into_iter().for_each(|(text, moment)| assert_eq!(parse(text), Ok(moment)));
        for wrong in ["", "-1", "step:x", "nan", "middle"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn devices_are_named_as_reports_name_them() {
        for device_name in ["cpu", "cuda:3", "pinned", "managed", "imported"] {
            assert_eq!(device(device_name).unwrap().to_string(), device_name);
        }
        assert!(device("gpu").is_err() && device("cuda:").is_err());
    }
}
