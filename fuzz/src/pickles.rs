//! Pickles that are put together from arbitrary input.

/// Keys and values that PyTorch's snapshots have.
const WORDS: [&str; 32] = [
    "segments",
    "device_traces",
    "allocator_settings",
    "external_annotations",
    "host_traces",
    "host_segments",
    "device",
    "address",
    "total_size",
    "blocks",
    "size",
    "requested_size",
    "state",
    "active_allocated",
    "active_pending_free",
    "inactive",
    "history",
    "real_size",
    "action",
    "alloc",
    "free_requested",
    "free_completed",
    "segment_map",
    "segment_unmap",
    "oom",
    "addr",
    "time_us",
    "frames",
    "name",
    "filename",
    "line",
    "user_metadata",
];

/// A pickle from tokens of one byte or two: a word, a number, or an opcode as it is.
pub fn pickle_of(input: &[u8]) -> Vec<u8> {
    let mut pickle = vec![0x80, 4];
    let mut rest = input.iter().copied();
    while let Some(token) = rest.next() {
        match token {
            0..=31 => {
                let word = WORDS[usize::from(token)];
                pickle.extend([0x8c, word.len() as u8]);
                pickle.extend_from_slice(word.as_bytes());
            }
            32..=39 => pickle.extend([b'K', rest.next().unwrap_or(0)]),
            200..=219 => {
                let number = (u64::from(rest.next().unwrap_or(0)) << (token - 200)).to_le_bytes();
                pickle.extend([0x8a, 8]);
                pickle.extend(number);
            }
            other => pickle.push(other),
        }
    }
    pickle.push(b'.');
    pickle
}
