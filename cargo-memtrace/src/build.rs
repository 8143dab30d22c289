//! Builds a program as cargo does, with line tables, and finds the executable.

use std::io::{BufReader, IsTerminal};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use cargo_metadata::Message;

use crate::cli::CargoArgs;
use crate::failure::CommandFailure;

/// An executable that cargo built.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// Builds what the arguments select, which must be one program.
pub(crate) fn program(args: &CargoArgs, environment: &[(String, String)]) -> Result<Built, CommandFailure> {
    let mut command = Command::new(cargo());
    command.arg("build").args(selection(args));
    command.arg("--message-format=json-render-diagnostics");
    if std::io::stderr().is_terminal() {
        command.args(["--color", "always"]);
    }
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let variable = format!("CARGO_PROFILE_{}_DEBUG", profile(args).to_uppercase().replace('-', "_"));
    if std::env::var_os(&variable).is_none() {
        command.env(&variable, "line-tables-only");
    }
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| CommandFailure::usage(format!("cannot run cargo: {error}")))?;
    let output = child.stdout.take().map(BufReader::new).into_iter();
    let built: Vec<Built> =
        output.flat_map(Message::parse_stream).filter_map(Result::ok).filter_map(executable).collect();
    let status = child.wait().map_err(|error| CommandFailure::usage(format!("cargo did not end: {error}")))?;
    if !status.success() {
        return Err(CommandFailure::usage("the build failed"));
    }
    one(built, args)
}

/// Cargo, as it calls its subcommands.
pub(crate) fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The profile's name in variables.
fn profile(args: &CargoArgs) -> &str {
    match (&args.profile, args.release) {
        (Some(profile), _) if profile != "dev" => profile,
        (None, true) => "release",
        _ => "dev",
    }
}

/// The arguments that select packages, targets and features.
fn selection(args: &CargoArgs) -> Vec<String> {
    let mut out = Vec::new();
    let flags = [
        ("--release", args.release),
        ("--all-features", args.all_features),
        ("--no-default-features", args.no_default_features),
        ("--locked", args.locked),
        ("--offline", args.offline),
    ];
    out.extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| (*flag).to_owned()));
    let values = [
        ("--profile", &args.profile),
        ("--bin", &args.bin),
        ("--example", &args.example),
        ("--package", &args.package),
        ("--target", &args.target),
        ("--manifest-path", &args.manifest_path),
    ];
    for (flag, value) in values {
        out.extend(value.iter().flat_map(|value| [flag.to_owned(), value.clone()]));
    }
    out.extend(args.features.iter().flat_map(|features| ["--features".to_owned(), features.clone()]));
    out
}

fn executable(message: Message) -> Option<Built> {
    let Message::CompilerArtifact(artifact) = message else { return None };
    let is_program = artifact.target.is_bin() || artifact.target.is_example();
    let path = artifact.executable.filter(|_| is_program)?;
    Some(Built { name: artifact.target.name, path: path.into() })
}

/// As `cargo run`: one program, or the package's default.
fn one(built: Vec<Built>, args: &CargoArgs) -> Result<Built, CommandFailure> {
    let default = default_run(args);
    match (&*built, default) {
        ([], _) => Err(CommandFailure::usage("the build made no program; name one with --bin or --example")),
        ([program], _) => Ok(program.clone()),
        (several, Some(default)) if several.iter().any(|built| built.name == default) => {
            Ok(several.iter().find(|built| built.name == default).unwrap_or(&several[0]).clone())
        }
        (several, _) => {
            let names: Vec<&str> = several.iter().map(|built| &*built.name).collect();
            Err(CommandFailure::usage(format!("there are several programs, name one with --bin: {}", names.join(", "))))
        }
    }
}

fn default_run(args: &CargoArgs) -> Option<String> {
    let mut metadata = cargo_metadata::MetadataCommand::new();
    if let Some(path) = &args.manifest_path {
        metadata.manifest_path(path);
    }
    let metadata = metadata.no_deps().exec().ok()?;
    let is_selected =
        |package: &&cargo_metadata::Package| args.package.as_ref().is_none_or(|name| package.name.as_str() == name);
    metadata.packages.iter().filter(is_selected).find_map(|package| package.default_run.clone())
}
