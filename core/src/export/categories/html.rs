//! Category timeline as one HTML page without scripts: the figure and its numbers.

use std::io::Write;

use super::figure::Picture;
use super::plot::escape;
use crate::analysis::device_or_main;
use crate::error::Error;
use crate::export::{Export, LeftOut};
use crate::report::sampled;
use crate::snapshot::{Category, Device, DeviceSnapshot, SnapshotData};
use crate::units::{Bytes, grouped};

const STYLE: &str = "\
:root { color-scheme: light }
body { font: 15px/1.5 sans-serif; color: #222; background: white; max-width: 1280px; margin: 1.5em auto; padding: 0 1em }
svg { width: 100%; height: auto }
table { border-collapse: collapse; margin: 1em 0 }
th, td { padding: .25em 1em .25em 0; text-align: right; font-variant-numeric: tabular-nums }
th { border-bottom: 1px solid #999; font-weight: 600 }
tr.sum td { border-top: 1px solid #999 }
th:first-child, td:first-child { text-align: left }
i { display: inline-block; width: .9em; height: .9em; margin-right: .5em; vertical-align: -.1em }
p { max-width: 60em }";

const HOW: &str = "\
The program gives a block's category, or it follows from the line that allocated the block and from the block's lifetime. \
Other blocks are unknown, and so is memory from before the recording.";

/// The category timeline as one HTML page without scripts: the figure of [`CategoriesSvg`](super::CategoriesSvg), the exact bytes
/// of each category at the peak, and an explanation of categories. An error if nothing was ever live.
#[derive(Clone, Debug, Default)]
pub struct CategoriesHtml {
    /// The device; the main one if `None`.
    pub device: Option<Device>,
}

impl Export for CategoriesHtml {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let picture = Picture::of(data, self.device)?;
        let notes = device_or_main(data, self.device).map(|device| notes(device, &picture)).unwrap_or_default();
        let title = escape(&picture.title);
        writeln!(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>")?;
        writeln!(out, "<style>\n{STYLE}\n</style>\n</head>\n<body>\n{}{}", picture.svg()?, table(&picture))?;
        writeln!(out, "<p>{HOW}</p>\n{notes}</body>\n</html>")?;
        Ok(LeftOut::default())
    }
}

fn table(picture: &Picture<'_>) -> String {
    let peak = &picture.peak.1;
    let row = |first: &str, bytes: u64, most: u64| {
        let percent = bytes as f64 * 100.0 / peak.total().max(1) as f64;
        let (exact, round) = (grouped(bytes), Bytes(bytes));
        format!(
            "<td>{first}</td><td>{exact}</td><td>{round}</td><td>{percent:.1} %</td><td>{}</td></tr>\n",
            grouped(most)
        )
    };
    let of = |category: &Category| {
        let name = format!("<i style=\"background:{}\"></i>{category}", category.colour());
        format!("<tr>{}", row(&name, peak.get(*category), picture.highest.get(*category)))
    };
    let rows: String = picture.categories.iter().map(of).collect();
    let when = picture.time(picture.peak.0);
    format!(
        "<table>\n<tr><th>At the peak, after {when}</th><th>Bytes</th><th></th><th>Share</th><th>Most at any time</th></tr>\n{rows}\
         <tr class=\"sum\">{}</table>\n",
        row("All", peak.total(), peak.total())
    )
}

fn notes(device: &DeviceSnapshot, picture: &Picture<'_>) -> String {
    let mut notes = String::new();
    if let Some(note) = sampled::note(device.sample_interval()) {
        notes += &format!("<p>The picture and its table are {note}.</p>\n");
    }
    if device.below_threshold > 0 || device.peak.below_threshold > 0 {
        notes += "<p>Blocks smaller than the recording's threshold are not shown.</p>\n";
    }
    if device.overwritten > 0 {
        let (lost, began) = (grouped(device.overwritten), picture.time(picture.timeline.start_ns()));
        notes += &format!("<p>The log has overwritten its {lost} oldest records; the picture begins at {began}.</p>\n");
    }
    let (time, bytes) = (picture.time(device.peak.time_ns), grouped(device.peak.bytes));
    if device.is_sample() {
        notes += &format!("<p>The recording's counted peak is {bytes} bytes at {time}.</p>\n");
    } else if device.peak.bytes > picture.peak.1.total() {
        notes += &format!("<p>The recording's peak, {bytes} bytes at {time}, was before that.</p>\n");
    }
    notes
}
