//! The runner as cargo starts it, with drivers and programs made for the test. A driver of NVIDIA's own is not
//! among them.

#![cfg(target_os = "linux")]

mod cargo;
mod choice;
mod place;
mod process;
mod skipped;
mod sources;
