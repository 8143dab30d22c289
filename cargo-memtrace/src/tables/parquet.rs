//! Parquet with Snappy compression, dictionaries for texts, and differences for rising numbers. Rows are written in
//! groups, which limits the memory.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::run::VERSION;
use super::{ColumnKind, TableCell, TableSpec, TableWriter};

const ROWS_PER_GROUP: usize = if cfg!(test) { 1 << 7 } else { 1 << 17 };

pub(super) struct ParquetTable {
    writer: SerializedFileWriter<File>,
    run: String,
    columns: Vec<ColumnBuffer>,
    rows: usize,
}

impl ParquetTable {
    pub(super) fn new(table: &TableSpec, run: &str, file: File) -> io::Result<Self> {
        let mut schema = format!("message {} {{", table.name);
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("memtrace ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(vec![KeyValue::new("memtrace.tables".to_owned(), VERSION.to_string())]));
        let mut columns = Vec::new();
        for (name, kind) in table.all() {
            let (of, buffer) = match kind {
                ColumnKind::Text => ("binary", ColumnBuffer::Texts(Buffer::default(), HashMap::new())),
                ColumnKind::Flag => ("boolean", ColumnBuffer::Flags(Buffer::default())),
                ColumnKind::Number | ColumnKind::Rising | ColumnKind::Time => {
                    ("int64", ColumnBuffer::Numbers(Buffer::default()))
                }
            };
            let means = match kind {
                ColumnKind::Text => " (UTF8)",
                ColumnKind::Time => " (TIMESTAMP(MICROS,true))",
                _ => "",
            };
            schema += &format!(" optional {of} {name}{means};");
            if kind == ColumnKind::Rising {
                let path = ColumnPath::from(name);
                properties = properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
            }
            columns.push(buffer);
        }
        let schema = parse_message_type(&(schema + " }")).map_err(failed)?;
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build())).map_err(failed)?;
        Ok(Self { writer, run: run.to_owned(), columns, rows: 0 })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for buffer in &mut self.columns {
            let Some(column) = group.next_column()? else { break };
            buffer.write(column)?;
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }
}

impl TableWriter for ParquetTable {
    fn row(&mut self, cells: &[TableCell<'_>]) -> io::Result<()> {
        let run = TableCell::Text(&self.run);
        for (buffer, cell) in self.columns.iter_mut().zip(std::iter::once(&run).chain(cells)) {
            buffer.push(*cell);
        }
        self.rows += 1;
        if self.rows == ROWS_PER_GROUP { self.write_group().map_err(failed) } else { Ok(()) }
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        if self.rows > 0 {
            self.write_group().map_err(failed)?;
        }
        let file = self.writer.into_inner().map_err(failed)?;
        file.sync_data()
    }
}

fn failed(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

/// The values of a row group that are not null, and for each row its level: 0 if the value is null, 1 if it is not.
#[derive(Default)]
struct Buffer<T> {
    values: Vec<T>,
    levels: Vec<i16>,
}

impl<T> Buffer<T> {
    fn push(&mut self, value: Option<T>) {
        self.levels.push(value.is_some().into());
        self.values.extend(value);
    }

    fn write<D: DataType<T = T>>(&mut self, mut column: SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        column.typed::<D>().write_batch(&self.values, Some(&self.levels), None)?;
        self.values.clear();
        self.levels.clear();
        column.close()
    }
}

enum ColumnBuffer {
    /// Equal texts share their bytes.
    Texts(Buffer<ByteArray>, HashMap<String, ByteArray>),
    Numbers(Buffer<i64>),
    Flags(Buffer<bool>),
}

impl ColumnBuffer {
    fn push(&mut self, cell: TableCell<'_>) {
        match (self, cell) {
            (Self::Texts(buffer, known), TableCell::Text(text)) => {
                let last = buffer.values.last().filter(|last| last.data() == text.as_bytes()).cloned();
                buffer.push(Some(last.unwrap_or_else(|| shared(known, text))));
            }
            (Self::Numbers(buffer), TableCell::Number(number)) => buffer.push(Some(number)),
            (Self::Flags(buffer), TableCell::Flag(flag)) => buffer.push(Some(flag)),
            (Self::Texts(buffer, _), _) => buffer.push(None),
            (Self::Numbers(buffer), _) => buffer.push(None),
            (Self::Flags(buffer), _) => buffer.push(None),
        }
    }

    fn write(&mut self, column: SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match self {
            Self::Texts(buffer, known) => {
                known.clear();
                buffer.write::<ByteArrayType>(column)
            }
            Self::Numbers(buffer) => buffer.write::<Int64Type>(column),
            Self::Flags(buffer) => buffer.write::<BoolType>(column),
        }
    }
}

fn shared(known: &mut HashMap<String, ByteArray>, text: &str) -> ByteArray {
    if let Some(known) = known.get(text) {
        return known.clone();
    }
    let bytes = ByteArray::from(text);
    known.insert(text.to_owned(), bytes.clone());
    bytes
}
