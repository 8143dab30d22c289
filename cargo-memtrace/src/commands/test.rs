//! `test`: cargo's tests, each program on a real GPU or a simulated one.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use crate::build::cargo;
use crate::cli::TestArgs;
use crate::failure::CommandFailure;
use crate::kit;

pub(crate) fn test(args: &TestArgs) -> Result<ExitCode, CommandFailure> {
    let (nextest, rest) = match args.args.split_first() {
        Some((first, rest)) if first == "nextest" => (true, rest),
        _ => (false, &*args.args),
    };
    let words: &[&str] = if nextest { &["nextest", "run"] } else { &["test"] };
    let mut command = Command::new(cargo());
    command.args(words).args(rest.iter().filter(|arg| !nextest || *arg != "run"));
    command.env(runner_variable()?, kit::runner()?);
    if let Some(memory) = &args.simulate {
        command.envs(kit::simulated_gpu(memory)?).env("MEMTRACE_GPU", "simulated");
        // As `run` builds there, so that both share what is built.
        for variable in ["CARGO_PROFILE_DEV_DEBUG", "CARGO_PROFILE_RELEASE_DEBUG"] {
            if std::env::var_os(variable).is_none() {
                command.env(variable, "line-tables-only");
            }
        }
    }
    let status = command.status().map_err(|error| CommandFailure::usage(format!("cannot run cargo: {error}")))?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2)))
}

/// `CARGO_TARGET_<TRIPLE>_RUNNER` of this machine.
fn runner_variable() -> Result<OsString, CommandFailure> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.map_err(|error| CommandFailure::usage(format!("cannot run rustc: {error}")))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or_else(|| CommandFailure::usage("rustc does not say for which machine it builds"))?;
    Ok(format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace('-', "_")).into())
}
