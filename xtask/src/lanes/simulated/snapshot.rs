//! A snapshot as PyTorch has it: what is looked at of it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use xshell::{Shell, cmd};

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Snapshot {
    pub(super) segments: Vec<Segment>,
    pub(super) device_traces: Vec<Vec<Event>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Segment {
    pub(super) device: u64,
    pub(super) total_size: u64,
    pub(super) blocks: Vec<Block>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) requested_size: u64,
    pub(super) state: String,
    pub(super) frames: Vec<Frame>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Event {
    pub(super) action: String,
    #[serde(default)]
    pub(super) addr: u64,
    pub(super) size: u64,
    #[serde(default)]
    pub(super) device_free: u64,
    pub(super) user_metadata: String,
    pub(super) frames: Vec<Frame>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Frame {
    pub(super) filename: String,
    pub(super) line: u64,
}

/// No crate reads it: serde-pickle, the one that is kept up, counts references to shared lists wrongly
/// <https://github.com/birkenfeld/serde-pickle/pull/24>.
const TO_JSON: &str = "import json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], 'rb')), sys.stdout)";

impl Snapshot {
    /// From a pickle, by Python's own reader.
    pub(super) fn read(shell: &Shell, path: &Path) -> Result<Self> {
        ensure!(path.exists(), "no snapshot {}", path.display());
        let json = cmd!(shell, "python3 -c {TO_JSON} {path}").quiet().read()?;
        serde_json::from_str(&json).with_context(|| path.display().to_string())
    }
}
