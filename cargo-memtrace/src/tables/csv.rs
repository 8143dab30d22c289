//! CSV with a header (RFC 4180, but with line feeds). A missing value is empty, an empty text is `""`. [`csv::text`]
//! keeps spreadsheets from evaluating texts as formulas.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use memtrace_core::export::csv;

use super::{TableCell, TableSpec, TableWriter};

pub(super) struct CsvTable {
    out: BufWriter<File>,
    run: String,
}

impl CsvTable {
    pub(super) fn new(table: &TableSpec, run: &str, file: File) -> io::Result<Self> {
        let names: Vec<&str> = table.all().map(|(name, _)| name).collect();
        let mut out = BufWriter::with_capacity(1 << 16, file);
        writeln!(out, "{}", names.join(","))?;
        Ok(Self { out, run: run.to_owned() })
    }
}

impl TableWriter for CsvTable {
    fn row(&mut self, cells: &[TableCell<'_>]) -> io::Result<()> {
        self.out.write_all(csv::text(&self.run).as_bytes())?;
        for cell in cells {
            self.out.write_all(b",")?;
            match cell {
                TableCell::Null => {}
                TableCell::Number(number) => write!(self.out, "{number}")?,
                TableCell::Flag(flag) => write!(self.out, "{flag}")?,
                TableCell::Text("") => self.out.write_all(b"\"\"")?,
                TableCell::Text(text) => self.out.write_all(csv::text(text).as_bytes())?,
            }
        }
        self.out.write_all(b"\n")
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.out.flush()?;
        self.out.get_ref().sync_data()
    }
}
