//! The program; the package's library has its code.

fn main() -> std::process::ExitCode {
    memtrace_runner::main()
}
