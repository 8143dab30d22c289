//! Operator series as CSV, for spreadsheets and data frames.

use std::io::{BufWriter, Write};

use crate::analysis::OperatorSeries;
use crate::error::Error;
use crate::export::operators::ExportOperators;
use crate::export::{LeftOut, csv};

/// The series of operator calls as CSV with a header (RFC 4180, but with line feeds), in bytes and nanoseconds, without
/// markers. A text that a spreadsheet would compute, such as `=1+1`, has an apostrophe before it.
#[derive(Clone, Debug, Default)]
pub struct OperatorsCsv;

impl ExportOperators for OperatorsCsv {
    fn write_operators(&self, series: &OperatorSeries, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let mut out = BufWriter::new(out);
        writeln!(
            out,
            "name,scope,line,thread,begin_ns,end_ns,allocations,added,before,peak,allocated,active,reserved"
        )?;
        for call in &series.calls {
            let name = call.name();
            let texts = [&*name, &*call.scope, &*call.line].map(csv::text);
            let numbers = [u64::from(call.thread), call.begin_ns, call.end_ns, call.allocations].map(|n| n.to_string());
            let bytes = [call.before, call.peak, call.allocated, call.active, call.reserved].map(|n| n.to_string());
            writeln!(out, "{},{},{},{}", texts.join(","), numbers.join(","), call.added, bytes.join(","))?;
        }
        out.flush()?;
        Ok(LeftOut::default())
    }
}
