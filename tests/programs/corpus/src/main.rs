//! Programs in which a scope labels every tensor operation with its operator and line, compared with attribution, which
//! knows only stacks. Prints one line per program: `PROGRAM events N bytes N operator RIGHT UNKNOWN WRONG line RIGHT
//! UNKNOWN WRONG`, in per cent of the bytes, followed by wrong attributions. Fails if more than 0.1 % of the bytes are
//! wrong; with `--strict` also if fewer than 99.5 % have the right operator or fewer than 99 % the right line.

mod check;
mod gan;

mod llama;
mod mlp;
mod resnet;

use std::process::ExitCode;

use candle_core::Result;
use check::Rates;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// Runs a call in a scope with its label: the operators that compose it in candle's source (alternatives separated by
/// `|`), and its line. After a `/`: the operators that compose those.
macro_rules! op {
    ($operators:literal, $call:expr) => {
        memtrace::scope(concat!("op ", $operators, " ", file!(), ":", line!()), || $call)
    };
}
pub(crate) use op;

type Program = (&'static str, fn() -> Result<()>);

/// The last program was written after the rules, which were not changed for it.
const PROGRAMS: [Program; 4] =
    [("mlp", mlp::train), ("resnet", resnet::train), ("llama", llama::generate), ("gan", gan::train)];

fn main() -> ExitCode {
    let strict = std::env::args().any(|argument| argument == "--strict");
    let mut failed = false;
    for (name, program) in PROGRAMS {
        let Ok(session) = memtrace::builder().min_size(256).start() else { return ExitCode::FAILURE };
        if let Err(error) = program() {
            println!("{name}: {error}");
            return ExitCode::FAILURE;
        }
        let snapshot = session.snapshot();
        drop(session);
        let rates = Rates::of(&snapshot);
        rates.print(name);
        failed |= !rates.are_good(strict);
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
