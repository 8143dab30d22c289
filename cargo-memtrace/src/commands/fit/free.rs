//! The memory that is free now on this machine's GPUs, according to `nvidia-smi`.

use std::process::Command;

use memtrace_core::analysis::Card;

use super::available::available_now;
use crate::failure::CommandFailure;

const ARGUMENTS: [&str; 2] = ["--query-gpu=name,memory.free", "--format=csv,noheader,nounits"];

/// A card for each GPU, with the memory that is free now.
pub(super) fn free_now() -> Result<Vec<Card>, CommandFailure> {
    let failed = |why: String| CommandFailure::usage(format!("--free asks nvidia-smi, and {why}"));
    let output = Command::new("nvidia-smi").args(ARGUMENTS).output();
    let output = output.map_err(|error| failed(format!("it does not run: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let of_line = |line: &str| card(line).map(Ok).or_else(|| integrated(line).map(available_now));
    let cards: Vec<Card> = text.lines().filter_map(of_line).collect::<Result<_, _>>()?;
    if !output.status.success() || cards.is_empty() {
        return Err(failed(format!("it says no GPU: {}", text.trim())));
    }
    Ok(cards)
}

/// Parses a line `NVIDIA GeForce RTX 4090, 23028`: the name, and MiB.
fn card(line: &str) -> Option<Card> {
    let (name, free) = line.rsplit_once(',')?;
    let free: u64 = free.trim().parse().ok()?;
    let source = "free now, by nvidia-smi";
    Some(Card { source, ..Card::of_product(name.trim(), free.checked_mul(1 << 20)?) })
}

/// The name in a line `NVIDIA GB10, [N/A]`. nvidia-smi does not know the memory of a GPU that uses the host's memory.
fn integrated(line: &str) -> Option<&str> {
    let (name, free) = line.rsplit_once(',')?;
    (free.trim() == "[N/A]").then(|| name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_nvidia_smi_is_a_card_with_what_is_free() {
        let card = card("NVIDIA GeForce RTX 4090, 23028").unwrap();
        assert_eq!((card.name.as_str(), card.memory), ("NVIDIA GeForce RTX 4090", 23_028 << 20));
        assert_eq!(card.threads, Card::named("RTX 4090").unwrap().threads);
        assert_eq!(["NVIDIA GB10, [N/A]", "a, 5", "a"].map(integrated), [Some("NVIDIA GB10"), None, None]);
        assert_eq!(["", "NVIDIA", "a, b", "a, [N/A]"].map(super::card), [const { None }; 4]);
    }
}
