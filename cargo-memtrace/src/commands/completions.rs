//! `completions`: made from the same definitions as `--help`.

use clap::Args;
use clap_complete::Shell;

use super::definition;
use crate::called;
use crate::failure::CommandFailure;
use crate::output;

/// Print completions for a shell
#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace completions bash >~/.local/share/bash-completion/completions/cargo-memtrace
  cargo memtrace completions zsh >~/.zfunc/_cargo-memtrace")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(&CompletionsArgs { shell }: &CompletionsArgs) -> Result<(), CommandFailure> {
    // Bash's script does not find the commands of a program whose name has a hyphen.
    let name = match shell {
        _ if called::is_alone() => called::name(),
        Shell::Bash => "cargo_memtrace",
        _ => "cargo-memtrace",
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut definition().name(name), name, &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Bash && !called::is_alone() {
        script = script.replace("default cargo_memtrace\n", "default cargo-memtrace\n") + BEHIND_CARGO;
    }
    output::print_shown(&script)
}

/// Bash completes the words after `cargo` with one function, which knows only cargo's own commands. The function in
/// this text is called before cargo's.
const BEHIND_CARGO: &str = r#"
_cargo_or_memtrace() {
    if [[ "${COMP_WORDS[1]}" == memtrace && "${COMP_CWORD}" -gt 1 ]]; then
        COMP_WORDS=(cargo-memtrace "${COMP_WORDS[@]:2}")
        COMP_CWORD=$((COMP_CWORD - 1))
        _cargo_memtrace cargo-memtrace "$2" "$3"
        return
    fi
    if ! declare -F _cargo >/dev/null && declare -F _completion_loader >/dev/null; then
        _completion_loader cargo
        complete -F _cargo_or_memtrace -o bashdefault -o default cargo
    fi
    if declare -F _cargo >/dev/null; then
        _cargo "$@"
    fi
}
complete -F _cargo_or_memtrace -o bashdefault -o default cargo
"#;
