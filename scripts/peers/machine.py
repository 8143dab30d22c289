"""Builds the programs of benches/peers, and describes the machine."""

import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or
              Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memtrace/target")

FEATURES = ["dhat", "jemalloc"]
PEERS = ["--manifest-path", ROOT / "benches/peers/Cargo.toml"]


def program(name):
    return TARGET / "release" / name


def build(*options):
    """None, or the last line with an error."""
    command = ["cargo", "build", "--release", "--locked", *options]
    done = subprocess.run(command, env={**os.environ, "CARGO_TARGET_DIR": str(TARGET)}, stderr=subprocess.PIPE, text=True)
    if done.returncode == 0:
        return None
    errors = [line for line in done.stderr.splitlines() if line.startswith("error")]
    return errors[-1] if errors else "cargo failed"


def build_all():
    """Errors by feature; the programs without features must build."""
    if problem := build("--manifest-path", ROOT / "Cargo.toml", "--package", "memtrace-preload"):
        sys.exit(f"the preloaded library does not build: {problem}")
    # If all build at once, they share every library.
    if build(*PEERS, "--all-features") is None:
        return {}
    if problem := build(*PEERS):
        sys.exit(f"benches/peers does not build: {problem}")
    return {feature: problem for feature in FEATURES if (problem := build(*PEERS, "--features", feature))}


def load():
    return os.getloadavg()[0]


def describe():
    model = "processor unknown"
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), model)
    rust = subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.split()
    version = f"Rust {rust[1]}" if len(rust) > 1 else "no rustc"
    return f"{model}, {os.cpu_count()} cores, {' '.join(platform.libc_ver())}, {version}"


def say(text):
    print(text, file=sys.stderr, flush=True)
