//! Check of memtrace's assumptions about the CUDA driver on a real GPU. Prints one table.
//!
//! It needs only NVIDIA's driver. It also runs on a simulated GPU (`cargo simulated cargo run --package
//! memtrace-gpu-check`), which shows that the check works; the results then say nothing about real
//! drivers.

// First, because the other modules use its macros.
#[macro_use]
#[expect(dead_code, unsafe_code, reason = "shared with tests that use all of it; calls C")]
mod raw;
mod calls;

mod account;
mod assumed;
mod balance;
mod blas;
mod captures;
mod exporter;
mod gpu;
mod graphs;
mod hooks;
mod ipc;
mod late;
mod launch_cost;
mod overhead;
mod physical;
mod pools;
mod refusals;
mod segments;
mod sharing;
mod table;
mod threads;
mod times;
mod uses;
mod watch;

use std::process::ExitCode;

use gpu::Gpu;
use table::Table;

const HELP: &str = "\
Checks on the first GPU of this machine what memtrace takes for granted about NVIDIA's driver.

Usage: gpu-check               everything
       gpu-check assumptions   only the table of what the simulated GPU does otherwise

First one row for each check: `ok` holds, `FAIL` does not, `info` is something to know. Then, for each thing that
the simulated GPU takes for granted, a row that says whether this device does the `same` or `differs`.

Takes seconds and up to 300 MiB of the GPU's memory, besides what the driver takes for contexts: it makes second ones,
and starts itself as a second process. Once it asks for more than there is. Nothing is left changed.
CUDA_VISIBLE_DEVICES chooses the GPU.

Exit code: 0 if no row says FAIL, 1 if one does, 2 if there is no GPU. With `assumptions`: 1 if a row differs.";

/// The whole program. It is a library because cargo fetches packages of libraries only, and `cargo memtrace` has it fetched.
pub fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => answer(Gpu::open().map(|gpu| check(&gpu))),
        Some(assumed::ASSUMPTIONS) => answer(Gpu::open().map(|gpu| assumed::print(&gpu))),
        Some(exporter::EXPORT) => answer(exporter::export().map(|()| true)),
        Some(argument) => {
            println!("{HELP}");
            if matches!(argument, "--help" | "-h") { ExitCode::SUCCESS } else { ExitCode::from(2) }
        }
    }
}

/// Returns whether no row failed, or why nothing could be checked.
fn answer(result: Result<bool, String>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("gpu-check: {reason}");
            ExitCode::from(2)
        }
    }
}

/// Runs all rows. Returns whether none failed.
fn check(gpu: &Gpu) -> bool {
    if gpu::is_simulated() {
        println!("A SIMULATED GPU: nothing below says anything about a real one.\n");
    }
    let mut table = Table::begin();
    table.section("the machine", |table| machine(gpu, table));
    table.section("hooks", |table| hooks::rows(gpu, table));
    table.section("own pools", |table| pools::rows(gpu, table));
    table.section("physical memory and arrays", physical::rows);
    table.section("graphs", |table| graphs::rows(gpu, table));
    table.section("other processes", ipc::rows);
    table.section("the end of a context", |table| hooks::ended_context(gpu, table));
    refusals::legacy_functions(&mut table);
    // The rounding that memtrace assumes, in case it cannot be measured.
    let mut unit = 512;
    table.section("the account", |table| account::used(gpu, table).map(|found| unit = found));
    table.section("reserved memory", |table| account::reserved(gpu, table));
    table.section("attributes", |table| account::pointers(gpu, table));
    table.section("segments", |table| segments::rows(gpu, table));
    table.section("the balance", |table| balance::rows(gpu, table));
    table.section("a late recording", |table| late::rows(gpu, table));
    table.section("out of memory", |table| refusals::out_of_memory(gpu, table));
    table.section("frees that go wrong", |table| refusals::frees(gpu, table));
    table.section("captures", |table| captures::rows(gpu, table));
    table.section("two threads", |table| threads::rows(gpu, unit, table));
    table.section("time in the driver", |table| times::rows(gpu, table));
    table.section("uses of blocks", uses::rows);
    table.section("cost", |table| overhead::rows(gpu, table));
    table.section("cost of a launch", |table| launch_cost::rows(gpu, table));
    table.section("the device's reset", hooks::reset_device);
    table.section("the simulator's assumptions", assumptions);
    table.end()
}

/// The second table, from a process of its own, in which nothing is in use on the device, and which may crash.
fn assumptions(table: &mut Table) -> std::io::Result<()> {
    println!("\nWhat the simulated GPU takes for granted:\n");
    let mut command = std::process::Command::new(std::env::current_exe()?);
    let status = command.arg(assumed::ASSUMPTIONS).env("MEMTRACE", "0").status()?;
    println!();
    const NAME: &str = "what the simulated GPU takes for granted";
    const DIFFERS: &str = "differs here: see the rows above";
    match status.code() {
        Some(0) => table.check(NAME, true, "the same here"),
        Some(1) if gpu::is_simulated() => table.check(NAME, false, DIFFERS),
        Some(1) => table.info(NAME, DIFFERS),
        Some(2) => table.info(NAME, "not tried: a second process gets no GPU"),
        _ => table.check(NAME, false, format!("{status}")),
    }
    Ok(())
}

fn machine(gpu: &Gpu, table: &mut Table) -> Result<(), cudarc::driver::DriverError> {
    let version = gpu::driver_version();
    table.info("driver", format!("for CUDA {}.{}", version / 1000, version % 1000 / 10));
    let (free, total) = gpu.context.mem_get_info()?;
    table.info("device", gpu.context.name()?);
    table.info("memory", format!("{} of {} MiB free", free >> 20, total >> 20));
    let session = watch::recording();
    let hooks = session.snapshot().health.cuda.clone();
    let detail = format!(
        "{:?}: {} imports changed, {} refused, {} answers to look-ups",
        hooks.state, hooks.imports, hooks.refused_imports, hooks.looked_up
    );
    table.check("memtrace's hooks", hooks.state.is_active() && hooks.refused_imports == 0, detail);
    Ok(())
}
