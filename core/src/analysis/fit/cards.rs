//! GPUs with the memory that CUDA reports, which is less than the size they are sold with.

const MIB: u64 = 1 << 20;

/// A GPU, with what a program's memory need depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its name, as in `RTX 4090`.
    pub name: String,
    /// Total bytes that CUDA reports; the lowest of several readings.
    pub memory: u64,
    /// The number of threads for which the driver reserves kernel stacks: multiprocessors times threads of each.
    /// `None` if unknown.
    pub threads: Option<u64>,
    /// Whether the memory is the host's, which the process itself also uses.
    pub unified: bool,
    /// Where the memory figure comes from.
    pub source: &'static str,
}

/// Name, MiB, multiprocessors, threads of each, and source. The memory is the lowest published reading. The numbers of
/// multiprocessors and threads are those of NVIDIA's data sheets, which are not cited here.
const CARDS: [(&str, u64, u64, u64, &str); 15] = [
    ("T4", 14_909, 40, 1024, "Zheng-Chong/CatVTON#133: 14.56 GiB"),
    ("A10G", 22_528, 80, 1536, "signalnine/q27#1: about 22 GiB"),
    ("RTX 5090 Laptop", 22_896, 82, 1536, "vllm-project/vllm#57475: 22.36 GiB"),
    ("RTX 4090", 24_080, 128, 1536, "ggml-org/llama.cpp#15860: 24,080 MiB"),
    ("A30", 24_094, 56, 2048, "google/RB-Modulation#5: 23.53 GiB"),
    ("RTX 3090", 24_123, 82, 1536, "ggml-org/llama.cpp#24608: 24,123 MiB"),
    ("RTX 5090", 32_111, 170, 1536, "ggml-org/llama.cpp#25465: 32,111 MiB"),
    ("RTX PRO 4500", 32_133, 82, 1536, "vllm-project/vllm#51590: 31.38 GiB"),
    ("A100 40GB", 40_448, 108, 2048, "TianheWu/CoSeR#10: 39.50 GiB"),
    ("L40S", 45_465, 142, 1536, "NVlabs/Eagle#68: an L40, 44.40 GiB"),
    ("RTX 6000 Ada", 48_508, 142, 1536, "unslothai/unsloth-zoo#1053: 48,508 MiB"),
    ("H100", 81_080, 132, 2048, "vllm-project/vllm#55169: 79.18 GiB"),
    ("A100 80GB", 81_152, 108, 2048, "wbfwonderful/Vad-R1#11: 79.25 GiB"),
    ("RTX PRO 6000", 97_247, 188, 1536, "ggml-org/llama.cpp#23604: 97,247 MiB"),
    ("B200", 182_633, 148, 2048, "unslothai/unsloth#8669: 182,633 MiB"),
];

/// All cards of the table, smallest first.
pub fn cards() -> impl Iterator<Item = Card> {
    CARDS.iter().map(|(name, mib, multiprocessors, threads, source)| Card {
        threads: Some(multiprocessors * threads),
        source,
        ..Card::of_memory(name, mib * MIB)
    })
}

impl Card {
    /// Finds a card by name. Case and separators do not matter: `rtx-4090` is `RTX 4090`.
    pub fn named(name: &str) -> Option<Self> {
        cards().find(|card| plain(&card.name) == plain(name))
    }

    /// A card with the name that the driver gives it, such as `NVIDIA GeForce RTX 4090`, and with its memory in bytes.
    pub fn of_product(name: &str, memory: u64) -> Self {
        let is_laptop = |name: &str| plain(name).contains("laptop");
        let is_known =
            |card: &Self| plain(name).contains(&plain(&card.name)) && is_laptop(&card.name) == is_laptop(name);
        let known = cards().filter(is_known).max_by_key(|card| card.name.len());
        Self { threads: known.and_then(|card| card.threads), ..Self::of_memory(name, memory) }
    }

    /// A card of which only the memory is known, in bytes as CUDA reports it.
    pub fn of_memory(name: &str, memory: u64) -> Self {
        Self { name: name.to_owned(), memory, threads: None, unified: false, source: "as given" }
    }

    /// An integrated GPU of a host with this much memory.
    pub fn of_host(name: &str, memory: u64) -> Self {
        Self { unified: true, ..Self::of_memory(name, memory) }
    }

    /// The fewest and the most threads for which kernel stacks are reserved.
    pub(super) fn threads(&self) -> (u64, u64) {
        let all = || cards().filter_map(|card| card.threads);
        let range = || (all().min().unwrap_or(0), all().max().unwrap_or(0));
        self.threads.map_or_else(range, |threads| (threads, threads))
    }
}

/// A name in lower case, without separators.
fn plain(name: &str) -> String {
    name.to_lowercase().replace([' ', '-', '_'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_has_the_threads_of_the_card_in_its_name() {
        let threads = |name| Card::of_product(name, 1).threads;
        let known = |name| Card::named(name).and_then(|card| card.threads);
        assert_eq!(threads("NVIDIA GeForce RTX 4090"), known("RTX 4090"));
        assert_eq!(threads("NVIDIA RTX 6000 Ada Generation"), known("RTX 6000 Ada"));
        assert_eq!(threads("NVIDIA GeForce RTX 5090 Laptop GPU"), known("RTX 5090 Laptop"));
        assert_eq!([threads("NVIDIA GeForce RTX 4090 Laptop GPU"), threads("Tesla V100")], [None, None]);
    }

    #[test]
    fn cards_are_found_by_their_names_and_none_has_what_it_is_sold_with() {
        for name in ["RTX 4090", "rtx-4090", "rtx4090"] {
            assert_eq!(Card::named(name).map(|card| card.memory), Some(24_080 * MIB));
        }
        assert_eq!(Card::named("RTX 4091"), None);
        let memory: Vec<u64> = cards().map(|card| card.memory).collect();
        assert!(memory.is_sorted() && cards().all(|card| card.memory % (1 << 30) > 0 || card.name == "A10G"));
    }
}
