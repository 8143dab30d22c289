//! The runner as cargo starts it, with drivers and programs built for the test. NVIDIA's own driver is not tested.

#![cfg(target_os = "linux")]

mod cargo;
mod choice;
mod process;
mod sandbox;
mod skipped;
mod sources;
