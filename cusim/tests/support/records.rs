//! The simulator's event log, as a program reads it.

use memtrace_cusim::history::HistoryRecord;

use super::support::Driver;

pub(crate) fn records(driver: Driver) -> Vec<HistoryRecord> {
    let address = driver.address(c"memtrace_cusim_events");
    // SAFETY: the function has this type.
    let events =
        unsafe { std::mem::transmute::<usize, extern "C" fn(u64, *mut HistoryRecord, usize) -> usize>(address) };
    let mut records = vec![HistoryRecord::default(); 100_000];
    let count = events(1, records.as_mut_ptr(), records.len());
    records.truncate(count);
    records
}
