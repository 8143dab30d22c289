//! Builds a program as cargo does, with line tables, and finds the executable.

use std::ffi::OsString;
use std::io::{BufReader, IsTerminal};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use cargo_metadata::{Message, Package};
use memtrace_runner::kit::cargo;

use crate::arguments::CargoArgs;
use crate::failure::CommandFailure;

/// An executable that cargo built.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// Builds the selected target, which must be one program.
pub(crate) fn program(args: &CargoArgs, environment: &[(&str, OsString)]) -> Result<Built, CommandFailure> {
    if !is_named(args) {
        name_one(programs(args), args)?;
    }
    let mut command = Command::new(cargo());
    command.arg("build").args(selection(args));
    if is_plain_bench(args) {
        command.args(["--profile", "bench"]);
    }
    command.arg("--message-format=json-render-diagnostics");
    if std::io::stderr().is_terminal() {
        command.args(["--color", "always"]);
    }
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command.envs(with_names(profile(args)));
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| CommandFailure::usage(format!("cannot run cargo: {error}")))?;
    let output = child.stdout.take().map(BufReader::new).into_iter();
    let built: Vec<Built> =
        output.flat_map(Message::parse_stream).filter_map(|message| executable(message.ok()?, args)).collect();
    let status = child.wait().map_err(|error| CommandFailure::usage(format!("cargo did not end: {error}")))?;
    if !status.success() {
        return Err(CommandFailure::usage("the build failed"));
    }
    one(built, args)
}

/// Whether a package that cargo builds for these arguments depends on a package of this name.
pub(crate) fn depends_on(args: &CargoArgs, name: &str) -> bool {
    selected(args).iter().flat_map(|package| &package.dependencies).any(|dependency| dependency.name == name)
}

/// The variables that make a profile keep the names of functions and lines, whatever Cargo.toml says. Variables that
/// the user has set are left out.
pub(crate) fn with_names(profile: &str) -> impl Iterator<Item = (String, &'static str)> {
    let profile = profile.to_uppercase().replace('-', "_");
    let variables = [("DEBUG", "line-tables-only"), ("STRIP", "none")];
    let variables = variables.map(|(what, value)| (format!("CARGO_PROFILE_{profile}_{what}"), value));
    variables.into_iter().filter(|(variable, _)| std::env::var_os(variable).is_none())
}

/// The profile's name, as cargo's variables spell it.
fn profile(args: &CargoArgs) -> &str {
    match (&args.profile, args.release) {
        (Some(profile), _) if profile != "dev" => profile,
        (None, true) => "release",
        _ if is_plain_bench(args) => "bench",
        _ => "dev",
    }
}

/// Whether a benchmark is built with the profile of `cargo bench`, because no other profile is chosen.
fn is_plain_bench(args: &CargoArgs) -> bool {
    args.bench.is_some() && args.profile.is_none() && !args.release
}

fn is_named(args: &CargoArgs) -> bool {
    args.bin.is_some() || args.example.is_some() || args.bench.is_some()
}

/// The arguments that select packages, targets and features.
pub(crate) fn selection(args: &CargoArgs) -> Vec<String> {
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
        ("--bench", &args.bench),
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

fn executable(message: Message, args: &CargoArgs) -> Option<Built> {
    let Message::CompilerArtifact(artifact) = message else { return None };
    let target = &artifact.target;
    // For a benchmark, cargo also builds the programs of the benchmark's package.
    let is_program = if args.bench.is_some() { target.is_bench() } else { target.is_bin() || target.is_example() };
    let path = artifact.executable.filter(|_| is_program)?;
    Some(Built { name: artifact.target.name, path: path.into() })
}

/// Selects one program as `cargo run` does: the only one, or the package's default.
fn one(built: Vec<Built>, args: &CargoArgs) -> Result<Built, CommandFailure> {
    let name = name_one(built.iter().map(|built| built.name.clone()).collect(), args)?;
    let named = name.and_then(|name| built.into_iter().find(|built| built.name == name));
    named.ok_or_else(|| CommandFailure::usage("the build made no program; name one with --bin, --example or --bench"))
}

/// The name of the selected program.
fn name_one(mut programs: Vec<String>, args: &CargoArgs) -> Result<Option<String>, CommandFailure> {
    let default = || selected(args).iter().find_map(|package| package.default_run.clone());
    if programs.len() < 2 {
        return Ok(programs.pop());
    }
    if let Some(default) = default().filter(|default| programs.contains(default)) {
        return Ok(Some(default));
    }
    programs.sort();
    let names = programs.join(", ");
    Err(CommandFailure::usage(format!("there are several programs, name one with --bin: {names}")))
}

/// The programs that cargo would build, whichever features are selected.
fn programs(args: &CargoArgs) -> Vec<String> {
    let packages = selected(args);
    let targets = packages.iter().flat_map(|package| &package.targets);
    let programs = targets.filter(|target| target.is_bin() && target.required_features.is_empty());
    programs.map(|target| target.name.clone()).collect()
}

/// The packages that cargo builds for these arguments; an empty list if cargo reports an error.
fn selected(args: &CargoArgs) -> Vec<Package> {
    let mut metadata = cargo_metadata::MetadataCommand::new();
    if let Some(path) = &args.manifest_path {
        metadata.manifest_path(path);
    }
    let Ok(metadata) = metadata.no_deps().exec() else { return Vec::new() };
    let here = std::env::current_dir().unwrap_or_default();
    let named = args.manifest_path.as_ref().map(|path| here.join(path));
    let manifest = named.or_else(|| here.ancestors().map(|up| up.join("Cargo.toml")).find(|path| path.is_file()));
    let is_here = |package: &Package| manifest.as_deref().is_some_and(|path| package.manifest_path == path);
    let is_root = manifest.as_deref() == Some(metadata.workspace_root.join("Cargo.toml").as_std_path());
    let is_selected = |package: &Package| match &args.package {
        Some(name) => package.name.as_str() == name,
        None if is_root => metadata.workspace_default_members.contains(&package.id),
        None => is_here(package),
    };
    metadata.packages.iter().filter(|package| is_selected(package)).cloned().collect()
}
