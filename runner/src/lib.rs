//! A runner for cargo and nextest. It chooses a real or a simulated GPU before a program starts; see README.md. [`kit`]
//! builds the simulated GPU, also for `cargo memtrace`.

#[cfg(target_os = "linux")]
mod choice;
#[cfg(target_os = "linux")]
mod driver;
#[cfg(unix)]
pub mod kit;
#[cfg(target_os = "linux")]
pub mod needs;
#[cfg(target_os = "linux")]
mod query;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod settings;
#[cfg(target_os = "linux")]
mod simulated;
#[cfg(target_os = "linux")]
mod skip;

/// The whole program. It is a library because cargo fetches only packages with a library, and `cargo memtrace` lets
/// cargo fetch this one.
#[cfg(target_os = "linux")]
pub fn main() -> std::process::ExitCode {
    run::main()
}

/// The whole program.
#[cfg(not(target_os = "linux"))]
pub fn main() -> std::process::ExitCode {
    eprintln!("memtrace-runner: works on Linux only; remove it from .cargo/config.toml for this target");
    std::process::ExitCode::FAILURE
}
