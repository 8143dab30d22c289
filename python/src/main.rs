//! The program `memtrace` of Python's wheel. Help and messages follow from the name of its file.

fn main() -> std::process::ExitCode {
    cargo_memtrace::main()
}
