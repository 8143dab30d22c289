//! `test`: runs cargo's tests, each test program on a real or a simulated GPU.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use clap::Args;
use memtrace_runner::kit::{TEST_RUNNER, cargo, host};

use crate::arguments::CargoArgs;
use crate::build;
use crate::failure::CommandFailure;
use crate::{cargo_runner, kit, output, signals};

/// Run tests, on a real or a simulated GPU
#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace test --release --simulate 24GiB --features cuda
  cargo memtrace test --release -- nextest run
  cargo memtrace test -- forward -- --nocapture")]
pub(crate) struct TestArgs {
    #[command(flatten)]
    cargo: CargoArgs,
    /// Run on a simulated GPU with this memory [default: a real GPU if there is one, else a simulated one]
    #[arg(long, value_name = "MEM[,MEM…]")]
    simulate: Option<String>,
    /// Arguments of `cargo test`, or `nextest` and its arguments
    #[arg(last = true)]
    args: Vec<OsString>,
}

pub(crate) fn run(args: &TestArgs) -> Result<ExitCode, CommandFailure> {
    let (nextest, rest) = match args.args.split_first() {
        Some((first, rest)) if first == "nextest" => (true, rest),
        _ => (false, &*args.args),
    };
    let words: &[&str] = if nextest { &["nextest", "run"] } else { &["test"] };
    let mut command = Command::new(cargo());
    command.args(words).args(selected(&args.cargo, nextest)).args(rest.iter().filter(|arg| !nextest || *arg != "run"));
    if let Some(runner) = cargo_runner::configured() {
        output::say(format!("the runner in {runner} is not used: `test` has a runner of its own"));
    }
    command.env(runner_variable()?, kit::file(&TEST_RUNNER)?);
    if let Some(memory) = &args.simulate {
        command.envs(kit::simulated_gpu(memory, true)?).env("MEMTRACE_GPU", "simulated");
        // The same variables as in `run`, so that both commands share what is built.
        command.envs(["dev", "release"].into_iter().flat_map(build::with_names));
    }
    let status = command.status().map_err(|error| CommandFailure::usage(format!("cannot run cargo: {error}")))?;
    Ok(signals::end_as(status))
}

/// The options as nextest spells them, because its own `--profile` has another meaning.
fn selected(args: &CargoArgs, nextest: bool) -> impl Iterator<Item = String> {
    let spelled = move |arg: String| if nextest && arg == "--profile" { "--cargo-profile".to_owned() } else { arg };
    build::selection(args).into_iter().map(spelled)
}

/// `CARGO_TARGET_<TRIPLE>_RUNNER` for this machine.
fn runner_variable() -> Result<OsString, CommandFailure> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let host = host(&mut Command::new(rustc)).map_err(|error| CommandFailure::usage(error.to_string()))?;
    Ok(format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace('-', "_")).into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::{Cli, Command};

    #[test]
    fn cargos_selection_is_taken_before_the_two_dashes_as_run_takes_it() {
        let words = |line: &str, nextest| {
            let Command::Test(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else { panic!("{line}") };
            selected(&args.cargo, nextest).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words("m test --release -p a --features x -- forward", false), "--release --package a --features x");
        assert_eq!(words("m test --profile fast -- nextest run", true), "--cargo-profile fast");
        assert_eq!(words("m test -- --release", false), "");
    }
}
