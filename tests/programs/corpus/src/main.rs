//! Programs whose every tensor operation says in a scope what it is and on which line: attribution, which knows only
//! stacks, is held against that. Prints one line for each program:
//! `PROGRAM events N bytes N operator RIGHT UNKNOWN WRONG line RIGHT UNKNOWN WRONG` with the shares in bytes, and what is wrong.
//! Fails if more than 0.1 % of the bytes are wrong; with `--strict` also if fewer than 99.5 % have the right operator
//! or fewer than 99 % the right line.

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

/// Runs a call and says, in a scope, which operators it is made of as candle's source has it (any of several, with `|`
/// between them) and where it stands. Behind a `/`: of which operators these are made.
macro_rules! op {
    ($operators:literal, $call:expr) => {
        memtrace::scope(concat!("op ", $operators, " ", file!(), ":", line!()), || $call)
    };
}
pub(crate) use op;

type Program = (&'static str, fn() -> Result<()>);

/// The last one was written when the rules were done, and they were not changed after it was measured.
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
