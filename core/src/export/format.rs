//! The list of all formats.

use std::io::Write;
use std::path::Path;

use super::*;
use crate::analysis::OperatorSeries;

type OfRecording = fn(&SnapshotData, &mut dyn Write) -> Result<LeftOut, Error>;
type AtMost = fn(&SnapshotData, u64, &mut dyn Write) -> Result<LeftOut, Error>;
type OfOperators = fn(&OperatorSeries, &mut dyn Write) -> Result<LeftOut, Error>;

/// To add a format, add a file to this folder, a line to the table in the docs of the module `export`, and a row here.
/// `cargo memtrace export --to` writes the formats that have a name.
static FORMATS: [Format; 16] = [
    Format::new::<Pickle>(".pickle")
        .named("pytorch", "PyTorch's memory_viz")
        .limited(|data, max, out| Pickle { max_bytes: Some(max), ..Pickle::default() }.write(data, out)),
    Format::new::<ChromeTrace>(".trace.json")
        .named("chrome", "Perfetto and chrome://tracing: what happened over time")
        .limited(|data, max, out| ChromeTrace { max_bytes: Some(max), ..ChromeTrace::default() }.write(data, out)),
    Format::new::<MemoryLayout>(".layout.json")
        .named("layout", "The same viewers: what lay where in memory")
        .limited(|data, max, out| MemoryLayout { max_bytes: Some(max), ..MemoryLayout::default() }.write(data, out)),
    Format::new::<Folded>(".folded")
        .named("folded", "Folded stacks for flamegraph tools and speedscope.app")
        .limited(|data, max, out| Folded { max_bytes: Some(max), ..Folded::default() }.write(data, out)),
    Format::new::<Pprof>(".pb.gz").named("pprof", "go tool pprof, Pyroscope, Parca"),
    Format::new::<Dhat>(".dhat.json").named("dhat", "DHAT's viewer, dh_view.html, and profiler.firefox.com"),
    Format::new::<Json>(".json")
        .named("json", "The whole report, with a schema")
        .limited(|data, max, out| Json { max_bytes: Some(max), ..Json::default() }.write(data, out)),
    Format::new::<Flamegraph>(".svg"),
    Format::new::<HtmlPage<'static>>(".html"),
    Format::new::<Text>(".txt"),
    Format::new::<Capture>(".memtrace"),
    Format::new::<OperatorsJson>(".operators.json")
        .operators(|series, out| OperatorsJson::default().write_operators(series, out)),
    Format::new::<OperatorsSvg>(".operators.svg").operators(|series, out| OperatorsSvg.write_operators(series, out)),
    Format::new::<CategoriesRaw>(".categories.raw.json"),
    Format::new::<CategoriesJson>(".categories.json"),
    Format::new::<TimelineSvg>(".categories.svg"),
];

/// A format. [`Export`] is implemented with its default options.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The format's name on the command line; empty if only a file's extension selects it.
    pub name: &'static str,
    /// The tools that read the format.
    pub tools: &'static str,
    /// The end of its file names, with `.gz` if the files are usually compressed.
    pub end: &'static str,
    write: OfRecording,
    at_most: Option<AtMost>,
    write_operators: Option<OfOperators>,
}

impl Format {
    const fn new<F: Export + Default>(end: &'static str) -> Self {
        let write: OfRecording = |data, out| F::default().write(data, out);
        Self { name: "", tools: "", end, write, at_most: None, write_operators: None }
    }

    const fn named(self, name: &'static str, tools: &'static str) -> Self {
        Self { name, tools, ..self }
    }

    const fn limited(self, at_most: AtMost) -> Self {
        Self { at_most: Some(at_most), ..self }
    }

    const fn operators(self, write: OfOperators) -> Self {
        Self { write_operators: Some(write), ..self }
    }

    /// The formats with a name.
    pub fn with_names() -> impl Iterator<Item = &'static Self> {
        FORMATS.iter().filter(|format| !format.name.is_empty())
    }

    /// The format for a path's extension; a final `.gz` means compression.
    ///
    /// # Errors
    /// If no format has this extension.
    pub fn of(path: &Path) -> Result<&'static Self, Error> {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let plain = name.strip_suffix(b".gz").unwrap_or(name);
        Self::by_extension(plain).ok_or_else(|| Error::format(path, &listed(|_| true)))
    }

    /// A file's name without its format's extension.
    pub(super) fn stem(name: &str) -> &str {
        Self::by_extension(name.as_bytes()).and_then(|format| name.strip_suffix(format.extension())).unwrap_or(name)
    }

    fn extension(&self) -> &'static str {
        self.end.strip_suffix(".gz").unwrap_or(self.end)
    }

    /// The longest extension wins, so a file with `.trace.json` is not taken for a report (`.json`).
    fn by_extension(name: &[u8]) -> Option<&'static Self> {
        let fitting = FORMATS.iter().filter(|format| name.ends_with(format.extension().as_bytes()));
        fitting.max_by_key(|format| format.extension().len())
    }

    /// The format with a size limit; `None` if it has no parts that can be left out.
    pub fn at_most(&self, max_bytes: u64) -> Option<impl Export + use<>> {
        self.at_most.map(|write| Limited { write, max_bytes })
    }

    /// Writes a series of operator calls.
    ///
    /// # Errors
    /// If it cannot be written, if there is nothing to draw, or if the format is for recordings only.
    pub fn write_operators(&self, series: &OperatorSeries, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let known = || listed(|format| format.write_operators.is_some());
        let write = self.write_operators.ok_or_else(|| Error::format(Path::new(self.end), &known()))?;
        write(series, out)
    }
}

/// The extensions of the formats that `is_one` selects.
fn listed(is_one: impl Fn(&Format) -> bool) -> String {
    FORMATS.iter().filter(|format| is_one(format)).map(Format::extension).collect::<Vec<_>>().join(", ")
}

impl Export for Format {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        (self.write)(data, out)
    }
}

struct Limited {
    write: AtMost,
    max_bytes: u64,
}

impl Export for Limited {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        (self.write)(data, self.max_bytes, out)
    }
}

/// Replaces the flamegraph if its feature is off.
#[cfg(not(feature = "flamegraph"))]
#[derive(Default)]
pub(super) struct MissingFlamegraph;

#[cfg(not(feature = "flamegraph"))]
impl Export for MissingFlamegraph {
    fn write(&self, _: &SnapshotData, _: &mut dyn Write) -> Result<LeftOut, Error> {
        Err(Error::drawing("picture", "this was built without memtrace's feature `flamegraph`".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_known_extension_is_the_format() {
        let cases = [
            ("a/b.pickle", ".pickle"),
            ("b.pickle.gz", ".pickle"),
            ("b.trace.json.gz", ".trace.json"),
            ("b.layout.json", ".layout.json"),
            ("b.json", ".json"),
            ("b.operators.json.gz", ".operators.json"),
            ("b.categories.json.gz", ".categories.json"),
            ("b.categories.raw.json.gz", ".categories.raw.json"),
            ("b.memtrace", ".memtrace"),
            ("b.pb.gz", ".pb"),
            ("b.dhat.json", ".dhat.json"),
        ];
        cases
            .iter()
            .for_each(|(path, extension)| assert_eq!(Format::of(Path::new(path)).unwrap().extension(), *extension));
        let error = Format::of(Path::new("x.bin")).unwrap_err().to_string();
        assert!(error.contains(".pickle") && error.contains("x.bin"), "{error}");
    }
    #[test]
    fn the_modules_table_has_every_format() {
        let table = include_str!("mod.rs");
        let is_there = |format: &&Format| table.contains(&format!("`{}`", format.extension()));
        let missing: Vec<_> = FORMATS.iter().filter(|format| !is_there(format)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
