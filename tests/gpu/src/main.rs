//! The program of the package's library.

fn main() -> std::process::ExitCode {
    memtrace_gpu_check::main()
}
