//! Strict parser for [`OperatorsJson`](super::OperatorsJson).

use std::path::Path;

use serde_json::{Map, Value};

use super::{FORMAT, VERSION};
use crate::analysis::{Marker, MarkerKind, OperatorCall, OperatorSeries, Texts};
use crate::error::Error;
use crate::input::Wanted;

/// The size limits are twice the writer's default.
const SERIES: Wanted =
    Wanted { begins: |bytes| bytes.starts_with(b"{"), most: 512 << 20, most_unpacked: 512 << 20, refused };

/// Reads a series of operator calls from an `.operators.json` file, which may be compressed.
///
/// # Errors
/// If the file cannot be read, is larger than 512 MiB (decompressed), or is not a series. The error names the field.
pub fn read_operators(path: impl AsRef<Path>) -> Result<OperatorSeries, Error> {
    let path = path.as_ref();
    parse_operators(&SERIES.read(path)?.bytes).map_err(|error| error.at(path))
}

fn refused(reason: String) -> Error {
    Error::parse("a series of operators", reason, "`Operators::write` writes them as .operators.json")
}

/// Parses the bytes of an [`OperatorsJson`](super::OperatorsJson). Unknown fields are ignored.
///
/// # Errors
/// If the bytes are not JSON, not a series or of a later version, or if a field is missing or invalid. The error names
/// the field.
pub fn parse_operators(bytes: &[u8]) -> Result<OperatorSeries, Error> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| refused(format!("it is not JSON: {error}")))?;
    let top = Fields::of(&value, "the file")?;
    match (top.get("format").and_then(Value::as_str), top.number("version")) {
        (Some(FORMAT), Ok(VERSION)) => series(&top),
        (Some(FORMAT), Ok(version)) => {
            Err(refused(format!("it has version {version}; this memtrace reads version {VERSION}")))
        }
        (Some(FORMAT), Err(error)) => Err(error),
        _ => Err(refused(format!("it does not say \"format\": {FORMAT:?}"))),
    }
}

fn series(top: &Fields<'_>) -> Result<OperatorSeries, Error> {
    let mut texts = Texts::default();
    let calls = top.list("calls")?.iter().enumerate();
    let calls: Vec<OperatorCall> = calls
        .map(|(at, value)| call(&Fields::of(value, &format!("calls[{at}]"))?, &mut texts))
        .collect::<Result<_, _>>()?;
    let markers = top.list("markers")?.iter().enumerate();
    let count = calls.len();
    Ok(OperatorSeries {
        program: top.text("program")?.to_owned(),
        device: top.text("device")?.to_owned(),
        calls,
        markers: markers
            .map(|(at, value)| marker(&Fields::of(value, &format!("markers[{at}]"))?, count))
            .collect::<Result<_, _>>()?,
        peak: top.number("peak")?,
        added_elsewhere: top.signed("added_elsewhere")?,
        overwritten: top.number("overwritten")?,
        num_alloc_retries: top.number("num_alloc_retries")?,
        num_ooms: top.number("num_ooms")?,
        sample_interval: top.get("sample_interval").map(|_| top.number("sample_interval")).transpose()?,
        left_out: top.number("left_out")?,
    })
}

fn call(call: &Fields<'_>, texts: &mut Texts) -> Result<OperatorCall, Error> {
    let thread = call.number("thread")?;
    Ok(OperatorCall {
        operator: texts.kept(call.text("operator")?),
        is_backward: call.read("backward", Value::as_bool, "true or false")?,
        number: call.number("number")?,
        scope: texts.kept(call.text("scope")?),
        line: texts.kept(call.text("line")?),
        thread: u32::try_from(thread).map_err(|_| call.wrong("thread", "the number of a thread"))?,
        begin_ns: call.number("begin_ns")?,
        end_ns: call.number("end_ns")?,
        allocations: call.number("allocations")?,
        added: call.signed("added")?,
        before: call.number("before")?,
        peak: call.number("peak")?,
        allocated: call.number("allocated")?,
        active: call.number("active")?,
        reserved: call.number("reserved")?,
    })
}

fn marker(marker: &Fields<'_>, calls: usize) -> Result<Marker, Error> {
    let kind = MarkerKind::from_word(marker.text("kind")?);
    let call = usize::try_from(marker.number("call")?).ok().filter(|call| *call <= calls);
    Ok(Marker {
        name: marker.text("name")?.into(),
        kind: kind.ok_or_else(|| marker.wrong("kind", "forward, backward, optimizer or scope"))?,
        call: call.ok_or_else(|| marker.wrong("call", "at most the number of calls"))?,
        time_ns: marker.number("time_ns")?,
    })
}

/// A JSON object and its name in messages.
struct Fields<'a> {
    object: &'a Map<String, Value>,
    place: &'a str,
}

impl<'a> Fields<'a> {
    fn of(value: &'a Value, place: &'a str) -> Result<Self, Error> {
        let object = value.as_object().ok_or_else(|| refused(format!("{place} is not an object")))?;
        Ok(Self { object, place })
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key)
    }

    fn wrong(&self, key: &str, wanted: &str) -> Error {
        refused(format!("{key:?} of {} is not {wanted}", self.place))
    }

    fn read<T>(&self, key: &str, read: impl FnOnce(&'a Value) -> Option<T>, wanted: &str) -> Result<T, Error> {
        self.get(key).and_then(read).ok_or_else(|| self.wrong(key, wanted))
    }

    fn number(&self, key: &str) -> Result<u64, Error> {
        self.read(key, Value::as_u64, "a whole number from 0")
    }

    fn signed(&self, key: &str) -> Result<i64, Error> {
        self.read(key, Value::as_i64, "a whole number")
    }

    fn text(&self, key: &str) -> Result<&'a str, Error> {
        self.read(key, Value::as_str, "a text")
    }

    fn list(&self, key: &str) -> Result<&'a [Value], Error> {
        self.read(key, |value| value.as_array().map(Vec::as_slice), "a list")
    }
}
