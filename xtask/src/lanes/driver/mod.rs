//! memtrace with NVIDIA's own driver library, which answers look-ups without a GPU. No call reaches a device. A probe
//! in C runs alone, under the preload library, and in a program that contains memtrace.

mod exports;
pub(crate) mod files;
pub(crate) mod kernels;
mod lookups;
mod probe;
mod programs;
mod symbols;
mod tables;

use std::path::{Path, PathBuf};

use anyhow::Result;

use self::exports::Exports;
use self::files::{AARCH64, CUDAS, DRIVERS};
use self::lookups::Expected;
use self::probe::{Host, Probe};
use self::symbols::Names;
use crate::checks::Checks;
use crate::lane::Run;
use crate::lanes::emulated::machine::Emulated;

/// What the tests need to know about one driver.
struct Driver {
    version: &'static str,
    folder: PathBuf,
    exports: Names,
}

impl Driver {
    /// `None` if the library is neither in the cache nor available.
    fn of(run: &Run, driver: &files::Driver) -> Result<Option<Self>> {
        let Some(folder) = driver.folder(run)? else { return Ok(None) };
        let exports = symbols::exports(run, &folder.join("libcuda.so.1"))?;
        Ok(Some(Self { version: driver.version, folder, exports }))
    }
}

/// Look-ups of the library for aarch64, emulated.
pub(crate) fn emulated(run: &Run, emulated: &Emulated<'_>) -> Result<String> {
    let (table, mut checks) = (Exports::read(run)?, Checks::default());
    let Some(driver) = Driver::of(run, &AARCH64)? else {
        return Ok(format!("not checked: no network for {}", AARCH64.version));
    };
    check_exports(&mut checks, &table, &driver);
    check_lookups(&mut checks, &table, &driver, &Probe::build(run, Some(emulated))?)?;
    checks.end()
}

pub(crate) fn run(run: &Run) -> Result<String> {
    let table = Exports::read(run)?;
    let (mut checks, mut probe, mut not_had) = (Checks::default(), None, Vec::new());
    let mut programs = Vec::new();
    for driver in &DRIVERS {
        let Some(driver) = Driver::of(run, driver)? else {
            not_had.push(driver.version);
            continue;
        };
        let probe = match &probe {
            Some(probe) => probe,
            None => {
                programs = programs::all(run, &mut not_had)?;
                probe.insert(Probe::build(run, None)?)
            }
        };
        check_exports(&mut checks, &table, &driver);
        check_lookups(&mut checks, &table, &driver, probe)?;
        for program in &programs {
            program.check(run, &mut checks, driver.version, &driver.folder, probe)?;
        }
        for (name, major) in CUDAS {
            match files::cuda(run, name)? {
                Some(cuda) => check_tables(&mut checks, &table, &driver, probe, &cuda, major)?,
                None => not_had.push(name),
            }
        }
    }
    if let Some(cuda) = files::cuda(run, "cuda13")? {
        check_header(run, &mut checks, &table, &cuda)?;
    }
    not_had.sort_unstable();
    not_had.dedup();
    let missing =
        if not_had.is_empty() { String::new() } else { format!("not checked: no network for {}", not_had.join(", ")) };
    if probe.is_none() {
        return Ok(missing);
    }
    let kinds = ["hooked", "changes no memory", "not seen"].map(|kind| format!("{} {kind}", table.count(kind)));
    let all = [checks.end()?, format!("names: {}", kinds.join(", ")), missing];
    Ok(all.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("; "))
}

fn check_exports(checks: &mut Checks, table: &Exports, driver: &Driver) {
    let missing = table.missing(exports::names(&driver.exports));
    let names = exports::names(&driver.exports).count();
    checks.equal(&format!("{}: of {names} exports the table lacks", driver.version), missing, Vec::new());
}

fn check_header(run: &Run, checks: &mut Checks, table: &Exports, cuda: &Path) -> Result<()> {
    let header = run.shell.read_file(cuda.join("cuda.h"))?;
    let declared = exports::declared(&header);
    let count = declared.len();
    checks.that("the header declares functions", count > 100);
    let missing = table.missing(declared.into_iter());
    checks.equal(&format!("cuda.h: of {count} functions the table lacks"), missing, Vec::new());
    Ok(())
}

fn check_lookups(checks: &mut Checks, table: &Exports, driver: &Driver, probe: &Probe<'_>) -> Result<()> {
    let hooked = table.hooked();
    let names = probe.names(driver.version, exports::names(&driver.exports))?;
    for host in [Host::Preload, Host::Linked] {
        for scope in ["local", "global"] {
            let arguments = ["lookups".as_ref(), names.as_os_str(), scope.as_ref()];
            let [plain, ours] = probe.both(host, &driver.folder, None, &arguments)?;
            let (memtrace, hooks) = probe.hooks(host);
            let expected = Expected { exports: &driver.exports, hooked: &hooked, memtrace, hooks };
            let found = lookups::compare(&plain, &ours, &expected)?;
            let name = format!("{}, {host:?}, {scope}", driver.version);
            checks.that(&format!("{name}: there are look-ups and hooks"), found.lookups > 1000 && found.hooks > 100);
            let all =
                format!("{} look-ups, {} hooks, {} by RTLD_NEXT past them", found.lookups, found.hooks, found.past);
            let first: Vec<&String> = found.wrong.iter().take(5).collect();
            checks.that(&format!("{name}: {all}; {} wrong {first:?}", found.wrong.len()), found.wrong.is_empty());
        }
    }
    Ok(())
}

/// Checks the tables of libraries that the probe loads, and of libraries that the loader initializes before memtrace.
fn check_tables(
    checks: &mut Checks,
    table: &Exports,
    driver: &Driver,
    probe: &Probe<'_>,
    cuda: &Path,
    major: &str,
) -> Result<()> {
    let libraries = ["cudart", "cublasLt", "cublas"].map(|name| format!("lib{name}.so.{major}"));
    let arguments: Vec<&std::ffi::OsStr> =
        ["tables"].into_iter().chain(libraries.iter().map(String::as_str)).map(AsRef::as_ref).collect();
    for host in [Host::Preload, Host::Linked] {
        for first in [None, Some(libraries[1].as_str())] {
            let [plain, ours] = probe.both(host, &driver.folder, Some((cuda, first)), &arguments)?;
            let (_, hooks) = probe.hooks(host);
            let name = format!("{}, {host:?}, {}", driver.version, first.map_or("loaded", |_| "initialized before"));
            let returned = |text: &str| {
                text.lines().filter(|line| line.starts_with("returned")).map(str::to_owned).collect::<Vec<_>>()
            };
            checks.that(
                &format!("{name}: the libraries' functions return the same"),
                returned(&plain) == returned(&ours),
            );
            for (library, found) in tables::read(&ours, &driver.exports, &table.hooked(), hooks)? {
                let all =
                    format!("{name}: {library}: {} hooks, {} other functions of the driver", found.hooks, found.driver);
                checks.that(&format!("{all}, past their hooks {:?}", found.past), found.past.is_empty());
                if library != tables::HEAP {
                    checks.that(&format!("{name}: {library} has hooks in its table"), found.hooks > 100);
                }
            }
        }
    }
    Ok(())
}
