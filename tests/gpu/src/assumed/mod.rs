//! The simulated GPU's assumptions about a real one, row by row: a table of differences.
//!
//! It is printed in Markdown, for docs/gpu-results.md. On the simulated GPU no row says `differs`. If a real GPU says
//! `differs`, correct the simulator in `cusim/`, and then the row here.

mod captures;
mod classic;
mod frees;
mod graphs;
mod held;
mod others;
mod pool;
mod replayed;
mod segments;
mod stacks;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::calls;
use crate::gpu::Gpu;
use crate::raw::Outcome;
use crate::table::message;

/// The argument that makes this program print only the table.
pub(crate) const ASSUMPTIONS: &str = "assumptions";

/// A query to the driver, and the simulator's answer.
struct Assumption {
    what: &'static str,
    assumed: &'static str,
    ask: fn(&Gpu) -> Outcome<String>,
}

const fn row(what: &'static str, assumed: &'static str, ask: fn(&Gpu) -> Outcome<String>) -> Assumption {
    Assumption { what, assumed, ask }
}

/// The number of rows of each kind.
#[derive(Debug, Default)]
struct Counts {
    same: usize,
    differs: usize,
    not_supported: usize,
}

/// Prints the table. Returns whether nothing differs.
pub(crate) fn print(gpu: &Gpu) -> bool {
    line("what", "assumed", "this device", "");
    println!("|{}|{}|{}|{}|", "-".repeat(66), "-".repeat(32), "-".repeat(32), "-".repeat(15));
    let mut counts = Counts::default();
    let groups = [
        pool::ROWS,
        replayed::ROWS,
        segments::ROWS,
        classic::ROWS,
        stacks::ROWS,
        graphs::ROWS,
        captures::ROWS,
        frees::ROWS,
        others::ROWS,
    ];
    groups.into_iter().flatten().for_each(|assumption| show(gpu, assumption, &mut counts));
    let Counts { same, differs, not_supported } = counts;
    println!("\n{same} same, {differs} differ, {not_supported} not supported");
    differs == 0
}

fn line(what: &str, assumed: &str, says: &str, word: &str) {
    println!("| {what:<64} | {assumed:<30} | {says:<30} | {word:<13} |");
}

fn show(gpu: &Gpu, assumption: &Assumption, counts: &mut Counts) {
    settle(gpu);
    let answer = catch_unwind(AssertUnwindSafe(|| (assumption.ask)(gpu)));
    settle(gpu);
    let answer = answer.unwrap_or_else(|panic| Ok(message(&*panic).replace(['\n', '|'], " ")));
    let says = answer.unwrap_or_else(|refused| code(Err::<(), _>(refused)));
    let (word, count) = match &*says {
        says if says == assumption.assumed => ("same", &mut counts.same),
        says if says.contains("code 801") => ("not supported", &mut counts.not_supported),
        _ => ("differs", &mut counts.differs),
    };
    *count += 1;
    line(assumption.what, assumption.assumed, &says, word);
}

/// Releases all memory, so that the next row finds nothing used or reserved.
fn settle(gpu: &Gpu) {
    gpu.context.bind_to_thread().expect("the primary context is a live one");
    gpu.settle();
    // A driver without graphs returns an error here.
    let _ = calls::trim_graphs(0);
}

/// The result code as text.
fn code<T>(answer: Outcome<T>) -> String {
    format!("code {}", answer.err().map_or(0, |code| code as u32))
}

/// A size as text, in whole MiB or in bytes.
fn size(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{} MiB", bytes >> 20) } else { format!("{bytes} bytes") }
}

/// How many more bytes the device has in use after an action than before.
fn takes<T>(act: impl FnOnce() -> Outcome<T>) -> Outcome<(u64, T)> {
    let before = calls::taken()?;
    let done = act()?;
    Ok((calls::taken()?.saturating_sub(before), done))
}

/// Whether a value falls to 0 at once, or only after a synchronization.
fn when(gpu: &Gpu, value: impl Fn() -> Outcome<u64>, before: u64) -> Outcome<String> {
    let at_once = value()?;
    gpu.context.synchronize().map_err(|error| error.0)?;
    let word = match (at_once, value()?) {
        (now, _) if now <= before => "at once".to_owned(),
        (_, later) if later <= before => "when synchronised".to_owned(),
        (_, later) => format!("not: {} more", size(later - before)),
    };
    Ok(word)
}
