//! PyTorch's snapshot format: the fields that checks read.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use xshell::{Shell, cmd};

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PickledSnapshot {
    pub(super) segments: Vec<PickledSegment>,
    pub(super) device_traces: Vec<Vec<PickledEvent>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PickledSegment {
    pub(super) device: u64,
    pub(super) total_size: u64,
    pub(super) blocks: Vec<PickledBlock>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PickledBlock {
    pub(super) address: u64,
    pub(super) requested_size: u64,
    pub(super) state: String,
    pub(super) frames: Vec<PickledFrame>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PickledEvent {
    pub(super) action: String,
    #[serde(default)]
    pub(super) addr: u64,
    pub(super) size: u64,
    #[serde(default)]
    pub(super) device_free: u64,
    pub(super) user_metadata: String,
    pub(super) frames: Vec<PickledFrame>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PickledFrame {
    pub(super) filename: String,
    pub(super) line: u64,
}

/// The pickle is read with Python, because serde-pickle, the only maintained crate for this, miscounts references to
/// shared lists (<https://github.com/birkenfeld/serde-pickle/pull/24>).
const TO_JSON: &str = "import json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], 'rb')), sys.stdout)";

impl PickledSnapshot {
    pub(super) fn read(shell: &Shell, path: &Path) -> Result<Self> {
        ensure!(path.exists(), "no snapshot {}", path.display());
        let json = cmd!(shell, "python3 -c {TO_JSON} {path}").quiet().read()?;
        serde_json::from_str(&json).with_context(|| path.display().to_string())
    }
}
