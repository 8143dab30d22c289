//! What help and messages call the program: `memtrace` where its file is called so, as in Python's wheel, else `cargo memtrace`.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

const ALONE: &str = "/env/bin/memtrace";
const BY_CARGO: &str = "cargo-memtrace";

fn run(name: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    command.arg0(name).args(arguments).current_dir(std::env::temp_dir()).output().unwrap()
}

fn text(name: &str, arguments: &[&str]) -> String {
    let Output { stdout, stderr, .. } = run(name, arguments);
    String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap()
}

/// The commands, from the help.
fn commands() -> Vec<String> {
    let help = text(BY_CARGO, &["--help"]);
    let list = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn help_of_every_command_calls_the_program_as_the_user_does() {
    let commands = commands();
    assert!(commands.len() > 15, "{commands:?}");
    for command in commands.iter().filter(|command| *command != "help") {
        let (alone, by_cargo) = (text(ALONE, &[command, "--help"]), text(BY_CARGO, &[command, "--help"]));
        assert!(alone.contains(&format!("Usage: memtrace {command}")), "{alone}");
        assert!(by_cargo.contains(&format!("Usage: cargo memtrace {command}")), "{by_cargo}");
        assert!(alone.contains("\n  memtrace "), "examples: {alone}");
        assert!(by_cargo.contains("\n  cargo memtrace "), "examples: {by_cargo}");
    }
    for alone in [text(ALONE, &["--help"]), text(ALONE, &["man"]), text(ALONE, &["completions", "bash"])] {
        assert!(!alone.contains("cargo memtrace") && !alone.contains("cargo-memtrace"), "{alone}");
    }
    assert_eq!(text(ALONE, &["--version"]), concat!("memtrace ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn messages_call_the_program_as_the_user_does() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/everything.memtrace");
    for (name, words) in [(ALONE, "`memtrace report --by"), (BY_CARGO, "`cargo memtrace report --by")] {
        let text = text(name, &["explain", golden.to_str().unwrap(), "no such line"]);
        assert!(text.contains(words), "{text}");
    }
    let empty = tempfile::tempdir().unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_cargo-memtrace")).arg0(ALONE).arg("report").current_dir(&empty).output();
    let text = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(text.contains("make one with `memtrace run`, or name a file"), "{text}");
}
