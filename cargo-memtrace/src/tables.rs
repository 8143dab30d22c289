//! Tables of a recording, as Parquet or CSV files. Each run has one folder; programs that read many runs see each table
//! as one table.
//!
//! `docs/parquet.md` describes the tables. If a column changes, [`run::VERSION`] changes.

mod columns;
mod csv;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;
mod run;
#[cfg(all(test, feature = "parquet"))]
pub(crate) mod tests;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use self::columns::{ColumnKind, TableCell, TableSpec, TableWriter};
use self::rows::TABLES;
pub(crate) use self::run::RunTables;
use crate::failure::CommandFailure;

/// The file format of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableFormat {
    Csv,
    Parquet,
}

impl TableFormat {
    pub(crate) const ALL: [Self; 2] = [Self::Parquet, Self::Csv];

    /// The format's name on the command line, and the files' extension.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }

    /// The format's help text: which tools read it.
    pub(crate) fn tools(self) -> &'static str {
        match self {
            Self::Csv => "The same tables as CSV",
            Self::Parquet => "Tables for DuckDB, Polars and Spark, in a folder below PATH",
        }
    }

    fn writer(self, table: &'static TableSpec, run: &str, file: File) -> io::Result<Box<dyn TableWriter>> {
        match self {
            Self::Csv => Ok(Box::new(csv::CsvTable::new(table, run, file)?)),
            #[cfg(feature = "parquet")]
            Self::Parquet => Ok(Box::new(parquet::ParquetTable::new(table, run, file)?)),
            #[cfg(not(feature = "parquet"))]
            Self::Parquet => Err(io::Error::other("this was built without cargo-memtrace's feature `parquet`")),
        }
    }
}

impl RunTables<'_> {
    /// Writes the folder `run=NAME` below `folder`, whole or not at all. Returns the new folder's path.
    pub(crate) fn write(&self, format: TableFormat, folder: &Path) -> Result<PathBuf, CommandFailure> {
        let name = self.name();
        let path = folder.join(format!("run={name}"));
        let failed = |error: io::Error| CommandFailure::usage(format!("cannot write {}: {error}", path.display()));
        if path.exists() {
            return Err(CommandFailure::usage(format!(
                "{} exists: this run is exported already; remove the folder to export it again",
                path.display()
            )));
        }
        fs::create_dir_all(folder).map_err(failed)?;
        let temporary = new_folder(folder).map_err(failed)?;
        self.fill(format, &name, temporary.path()).map_err(failed)?;
        fs::rename(temporary.path(), &path).map_err(failed)?;
        // The folder was renamed, so there is nothing to remove.
        let _ = temporary.keep();
        Ok(path)
    }

    fn fill(&self, format: TableFormat, name: &str, folder: &Path) -> io::Result<()> {
        for (table, write) in TABLES {
            let file = File::create_new(folder.join(format!("{}.{}", table.name, format.name())))?;
            let mut writer = format.writer(table, name, file)?;
            write(self, &mut *writer)?;
            writer.finish()?;
        }
        Ok(())
    }
}

/// A temporary folder with the permissions of an ordinary new one.
fn new_folder(folder: &Path) -> io::Result<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".memtrace-").permissions(fs::Permissions::from_mode(0o777)).tempdir_in(folder)
}
