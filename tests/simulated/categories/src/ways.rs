//! The same programs with and without uses of blocks, as a table.

use std::error::Error;
use std::process::ExitCode;

use memtrace::snapshot::SnapshotData;

use crate::check::Rates;
use crate::truth::Truth;
use crate::{Program, recorded};

/// Prints per cent of right bytes and wrong bytes, at the peak and of all. Fails if a category is wrong, less of a program
/// is right with uses than without, or no more of all.
pub(crate) fn print<'a>(programs: impl Iterator<Item = &'a Program>, in_full: bool) -> ExitCode {
    println!("| program | without uses | with uses | with uses and const-ness |");
    println!("|---|---|---|---|");
    let (mut sums, mut failed): ([Option<Rates>; 3], bool) = ([const { None }; 3], false);
    for program in programs {
        match ways(program) {
            Ok(ways) => {
                row(program.name, &ways);
                failed |= ways.iter().any(|rates| rates.all.wrong() + rates.peak.wrong() > 0);
                failed |= ways[1].all.right() < ways[0].all.right();
                if in_full {
                    ways[1].print(program.name, true);
                }
                for (sum, rates) in sums.iter_mut().zip(&ways) {
                    sum.get_or_insert_with(Rates::default).sum(rates);
                }
            }
            Err(error) => {
                println!("{}: {error}", program.name);
                failed = true;
            }
        }
    }
    let sums = sums.map(Option::unwrap_or_default);
    row("together", &sums);
    failed |= sums[1].peak.right() <= sums[0].peak.right();
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn row(name: &str, ways: &[Rates; 3]) {
    let cell = |rates: &Rates| {
        let wrong = rates.all.wrong();
        let wrong = if wrong > 0 { format!(", {wrong} B wrong") } else { String::new() };
        format!("{:.1} / {:.1}{wrong}", rates.peak.right(), rates.all.right())
    };
    let [without, with, with_const] = ways.each_ref().map(cell);
    println!("| {name} | {without} | {with} | {with_const} |");
}

/// One recording, read in three ways.
fn ways(program: &Program) -> Result<[Rates; 3], Box<dyn Error>> {
    let (truth, snapshot) = recorded(program, false, true)?;
    let mut without: SnapshotData = (*snapshot).clone();
    without.devices.iter_mut().for_each(|device| device.uses.clear());
    let mut not_const: SnapshotData = (*snapshot).clone();
    // A binary does not say which pointers a kernel only reads.
    not_const.devices.iter_mut().flat_map(|device| &mut device.uses).for_each(|uses| uses.reads = 0);
    Ok([rates(&truth, &without)?, rates(&truth, &not_const)?, rates(&truth, &snapshot)?])
}

fn rates(truth: &Truth, data: &SnapshotData) -> Result<Rates, Box<dyn Error>> {
    let device = data.device(truth.device).ok_or("the device was recorded")?;
    Ok(Rates::of(truth, data, device))
}
