//! The program that cargo starts for `cargo memtrace`.

fn main() -> std::process::ExitCode {
    cargo_memtrace::main()
}
