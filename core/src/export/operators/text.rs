//! Operator series as a text table.

use std::fmt;

use crate::analysis::{OperatorCall, OperatorSeries};
use crate::export::table::{Cut, TextTable};
use crate::report::sampled;
use crate::units::{Bytes, grouped, signed};
use crate::visible;

const ROWS: usize = 10;
const WIDTH: usize = 120;

impl fmt::Display for OperatorSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let top = self.top(ROWS);
        let calls = grouped(self.calls.len() as u64);
        writeln!(
            f,
            "{calls} operator calls on {}, peak {}; the calls that added most:",
            visible::line(&self.device),
            Bytes(self.peak)
        )?;
        sampled::note(self.sample_interval).map_or(Ok(()), |note| writeln!(f, "{note}"))?;
        let mut table = TextTable::new(&["Added", "Peak in it", "Allocated", "Reserved", "Operator"], Cut::End);
        top.iter().for_each(|call| table.row(row(call)));
        table.lines(WIDTH).iter().try_for_each(|line| writeln!(f, "{line}"))?;
        writeln!(f, "{} added outside operator calls", signed(self.added_elsewhere))?;
        write!(f, "retries after refused allocations {}, out of memory {}", self.num_alloc_retries, self.num_ooms)?;
        if self.overwritten > 0 {
            write!(f, "\n{} records are older than the log", grouped(self.overwritten))?;
        }
        if self.left_out > 0 {
            write!(f, "\nthe file left out {} calls that added least", grouped(self.left_out))?;
        }
        Ok(())
    }
}

fn row(call: &OperatorCall) -> Vec<String> {
    let scope = if call.scope.is_empty() { String::new() } else { format!("  {}", call.scope) };
    let bytes = [call.peak, call.allocated, call.reserved].map(|bytes| Bytes(bytes).to_string());
    let mut cells = vec![signed(call.added)];
    cells.extend(bytes);
    cells.push(format!("{}  {}{scope}", call.name(), call.line));
    cells
}
