//! The report as text, to fit a terminal.

use std::fmt::Write as _;
use std::io::Write;

use super::table::{Cut, Table};
use super::{Export, LeftOut, coverage, device_memory, sampled, twice};
use crate::analysis::{self, Breakdown, Shown, TABLES, device_or_main};
use crate::error::Error;
use crate::snapshot::{Device, DeviceSnapshot, SnapshotData};
use crate::units::{Bytes, grouped, round};

/// The report as text.
#[derive(Clone, Debug)]
pub struct Text {
    /// Characters in a line.
    pub width: usize,
    /// Rows in a table; what is left out is summed in a last row.
    pub rows: usize,
    /// Bold headings, by ANSI escapes.
    pub color: bool,
    /// Which device; the one with the largest peak if `None`.
    pub device: Option<Device>,
}

impl Default for Text {
    fn default() -> Self {
        Self { width: 120, rows: 20, color: false, device: None }
    }
}

impl Text {
    /// The report of a recording.
    pub fn render(&self, data: &SnapshotData) -> String {
        let mut page = Page { text: String::new(), options: self, about: "" };
        match device_or_main(data, self.device) {
            Some(device) if device.peak.total() > 0 || device.stats.num_ooms > 0 => page.device(data, device),
            _ => page.nothing(data),
        }
        page.health(data);
        page.text
    }
}

impl Export for Text {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        out.write_all(self.render(data).as_bytes())?;
        Ok(LeftOut::default())
    }
}

/// What held a device's peak, for a failed assertion.
pub fn at_peak(data: &SnapshotData, device: Device, rows: usize) -> String {
    let options = Text { rows, width: 100, ..Text::default() };
    let mut page = Page { text: String::new(), options: &options, about: "" };
    if let Some(device) = device_or_main(data, Some(device)) {
        page.tables(data, device, &[Shown::Always, Shown::InFailures]);
    }
    page.text
}

struct Page<'a> {
    text: String,
    options: &'a Text,
    /// What stands before estimates while a device of a sample is told of.
    about: &'static str,
}

impl Page<'_> {
    fn device(&mut self, data: &SnapshotData, device: &DeviceSnapshot) {
        self.about = sampled::about(device.sample_interval());
        self.summary(data, device);
        self.tables(data, device, &[Shown::Always, Shown::InReports]);
        self.scopes(data, device);
        self.temporaries(data, device);
        if let Some((heading, lines)) = twice::section(data, device, self.options.rows / 2, self.options.width) {
            self.heading(heading);
            lines.iter().for_each(|line| self.line(line));
        }
        for (heading, lines) in device_memory::sections(data, device, self.options.width) {
            self.heading(&heading);
            lines.iter().for_each(|line| self.line(line));
        }
        self.tables(data, device, &[Shown::AtEnd]);
        self.about = "";
    }

    fn summary(&mut self, data: &SnapshotData, device: &DeviceSnapshot) {
        let (peak, stats, process, about) = (&device.peak, &device.stats, &data.process, self.about);
        let on = coverage::device_name(data, device.device);
        self.heading(&format!("memtrace: memory of {} on {on}", process.program));
        self.line(&format!(
            "Peak             {} ({} bytes) after {:.3} s",
            Bytes(peak.total()),
            grouped(peak.total()),
            seconds(peak.time_ns)
        ));
        sampled::lines(device).iter().for_each(|line| self.line(line));
        if data.settings.min_size > 1 && device.device == Device::Cpu {
            let threshold = round(data.settings.min_size);
            self.line(&format!("                 {} in blocks of {threshold} or more", Bytes(peak.bytes)));
            self.line(&format!("                 {} in smaller ones at that moment", Bytes(peak.below_threshold)));
        }
        self.line(&format!(
            "Total allocated  {about}{} in {about}{} allocations; {about}{} of them freed",
            Bytes(stats.allocated_bytes.allocated),
            grouped(stats.allocations.allocated),
            grouped(stats.allocations.freed)
        ));
        coverage::pool_lines(device).iter().for_each(|line| self.line(line));
        if let Some(oom) = device.ooms.last() {
            self.line(&format!(
                "Out of memory    {} times, the last asking for {} after {:.3} s",
                grouped(stats.num_ooms),
                Bytes(oom.size),
                seconds(oom.time_ns)
            ));
            if stats.num_alloc_retries > 0 {
                self.line(&format!(
                    "                 asked again for as much {} times",
                    grouped(stats.num_alloc_retries)
                ));
            }
        }
        self.other_devices(data, device);
        self.line(&format!(
            "Recorded         {:.3} s, {} records, {} overwritten",
            seconds(process.duration_ns),
            grouped(device.records.len() as u64),
            grouped(device.overwritten)
        ));
    }

    /// The peaks of the memories that the report is not about.
    fn other_devices(&mut self, data: &SnapshotData, shown: &DeviceSnapshot) {
        let others = data.devices.iter().filter(|other| other.device != shown.device && other.peak.total() > 0);
        for (device, head) in others.zip(std::iter::once("Other memory").chain(std::iter::repeat(""))) {
            let peak = device.peak.total();
            self.line(&format!("{head:16} {}: peak {} ({} bytes)", device.device, Bytes(peak), grouped(peak)));
        }
    }

    fn tables(&mut self, data: &SnapshotData, device: &DeviceSnapshot, shown: &[Shown]) {
        for table in TABLES.iter().filter(|table| shown.contains(&table.shown) && (table.matters)(data, device)) {
            self.heading(table.title);
            self.breakdown(&(table.make)(data, device), table.column);
        }
    }

    fn breakdown(&mut self, breakdown: &Breakdown, last: &'static str) {
        if breakdown.rows.is_empty() {
            return self.line("(nothing)");
        }
        let cut = if last == "Location" { Cut::Start } else { Cut::End };
        let mut table = Table::new(&["Mem", "Cumulative", "%", "Median", "Count", last], cut);
        let mut cumulative = 0;
        for row in breakdown.rows.iter().take(self.options.rows) {
            cumulative += row.bytes;
            table.row(vec![
                self.bytes(row.bytes),
                self.bytes(cumulative),
                percent(row.bytes, breakdown.total),
                row.count.map_or("-".to_owned(), |_| Bytes(row.median).to_string()),
                row.count.map_or("-".to_owned(), grouped),
                row.label.clone(),
            ]);
        }
        if let Some(rest) = breakdown.rows.get(self.options.rows..).filter(|rest| !rest.is_empty()) {
            let bytes: u64 = rest.iter().map(|row| row.bytes).sum();
            let count: u64 = rest.iter().filter_map(|row| row.count).sum();
            table.row(vec![
                self.bytes(bytes),
                self.bytes(breakdown.total),
                percent(bytes, breakdown.total),
                String::new(),
                grouped(count),
                format!("({} more rows)", rest.len()),
            ]);
        }
        self.table(&table);
    }

    fn scopes(&mut self, data: &SnapshotData, device: &DeviceSnapshot) {
        let rows = analysis::scopes(data, device);
        if rows.is_empty() {
            return;
        }
        self.heading("By scope");
        self.line("At peak   held at the peak by what was allocated directly in the scope");
        self.line("Own peak  the most held at once by what was allocated in it or inside it");
        self.line("Total     the most on the device while the scope was open, whoever allocated;");
        self.line("          blocks below the threshold are not in these three");
        let mut table = Table::new(&["At peak", "%", "Own peak", "Total", "Calls", "Allocs", "Scope"], Cut::End);
        let total = device.peak.total();
        let least = smallest_shown(&rows, 2 * self.options.rows);
        let (shown, hidden): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.own_peak >= least);
        for row in shown {
            table.row(vec![
                self.bytes(row.at_peak),
                percent(row.at_peak, total),
                self.bytes(row.own_peak),
                row.total_peak.map_or("-".to_owned(), |bytes| self.bytes(bytes)),
                grouped(row.calls),
                grouped(row.allocations),
                format!("{}{}", "  ".repeat(row.depth.saturating_sub(1)), row.name),
            ]);
        }
        let mut rest = |bytes: u64, label: String| {
            let mut row = vec![self.bytes(bytes), percent(bytes, total)];
            row.resize(6, String::new());
            row.push(label);
            table.row(row);
        };
        if !hidden.is_empty() {
            let label = format!("({} scopes whose own peak is below {})", hidden.len(), Bytes(least));
            rest(hidden.iter().map(|row| row.at_peak).sum(), label);
        }
        let in_scopes: u64 = rows.iter().map(|row| row.at_peak).sum();
        rest(total.saturating_sub(in_scopes), "(everything else)".to_owned());
        self.table(&table);
    }

    fn temporaries(&mut self, data: &SnapshotData, device: &DeviceSnapshot) {
        let rows = analysis::temporaries(data, device);
        if rows.is_empty() {
            return;
        }
        self.heading("Temporaries");
        let of = if device.overwritten > 0 { ", in the records that the log still holds" } else { "" };
        let recorded = if device.is_sample() { " of the sample" } else { "" };
        self.line(&format!("Freed before {} more blocks{recorded} were allocated{of}.", analysis::SOON));
        let mut table = Table::new(&["Total", "Count", "Largest", "Location"], Cut::Start);
        for row in rows.iter().take(self.options.rows / 2) {
            table.row(vec![
                self.bytes(row.bytes),
                grouped(row.count),
                Bytes(row.largest).to_string(),
                row.label.clone(),
            ]);
        }
        self.table(&table);
        if rows.len() > self.options.rows / 2 {
            self.line(&format!("({} more rows)", rows.len() - self.options.rows / 2));
        }
    }

    fn nothing(&mut self, data: &SnapshotData) {
        self.line("memtrace: nothing was recorded");
        if data.health.no_allocator {
            self.line("The heap was not seen, because memtrace's allocator is not in the program. Put this into it:");
            self.line("    #[global_allocator]");
            self.line("    static ALLOC: memtrace::Alloc = memtrace::Alloc::system();");
        }
    }

    /// What was missed: said only where there is something to say.
    fn health(&mut self, data: &SnapshotData) {
        let health = &data.health;
        let mut notes = health.notes();
        let lost_names: u64 = data.devices.iter().map(|device| device.lost_names).sum();
        if lost_names > 0 {
            notes.push(format!("{} blocks could not be given a name: too many have one", grouped(lost_names)));
        }
        if health.no_line_numbers {
            notes.push(
                "functions have no line numbers; to get them, put this into Cargo.toml:\n    \
                 [profile.release]\n    debug = \"line-tables-only\""
                    .to_owned(),
            );
        }
        if health.unknown_addresses > 0 {
            let addresses = grouped(health.unknown_addresses);
            notes.push(format!(
                "{addresses} code addresses have no name: a program or library without symbols; for a program, put this into \
                 Cargo.toml:\n    [profile.release]\n    strip = \"none\"\n    debug = \"line-tables-only\""
            ));
        }
        notes.extend(health.unreadable_modules.iter().map(|module| format!("no names for the code of {module}")));
        if health.cut_off {
            notes.push(
                "the capture ends without its end mark: the program was killed, or is still writing it; \
                 this is what it held at the last flush"
                    .to_owned(),
            );
        }
        if health.unread_bytes > 0 {
            let bytes = grouped(health.unread_bytes);
            notes.push(format!("{bytes} bytes at the end of the capture are incomplete or damaged and were not read"));
        }
        notes.extend(data.devices.iter().filter_map(gap_note));
        notes.extend(coverage::notes(data));
        if let Some((cause, advice)) = analysis::spanless_note(data) {
            notes.push(format!("{cause};\n    {advice}"));
        }
        if !notes.is_empty() {
            self.heading("Notes");
            notes.iter().for_each(|note| self.line(note));
        }
    }

    fn heading(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let (on, off) = if self.options.color { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        let estimates = if self.about.is_empty() { "" } else { " (estimates)" };
        let _ = writeln!(self.text, "{on}{text}{estimates}{off}");
    }

    /// A sum over blocks, marked if it is an estimate.
    fn bytes(&self, bytes: u64) -> String {
        format!("{}{}", self.about, Bytes(bytes))
    }

    fn table(&mut self, table: &Table) {
        table.lines(self.options.width).iter().for_each(|line| self.line(line));
    }

    fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }
}

/// The own peak from which on a scope is shown, so that about `most` are. A scope's own peak is at least that of each
/// scope inside it, so whoever is shown stands below its parents.
fn smallest_shown(rows: &[analysis::ScopeRow], most: usize) -> u64 {
    let mut own: Vec<u64> = rows.iter().map(|row| row.own_peak).collect();
    own.sort_unstable_by(|a, b| b.cmp(a));
    // Those that are as large as the first that does not fit go with it.
    own.get(most).map_or(0, |first_out| first_out + 1)
}

/// What a streamed capture could not keep up with.
fn gap_note(device: &DeviceSnapshot) -> Option<String> {
    let (first, last) = (device.gaps.first()?, device.gaps.last()?);
    let missing: u64 = device.gaps.iter().map(|gap| gap.records).sum();
    let all = missing + device.records.len() as u64;
    let (records, share) = (grouped(missing), percent(missing, all));
    let (gaps, times) = (device.gaps.len(), if device.gaps.len() == 1 { "gap" } else { "gaps" });
    let (from, to) = (seconds(first.from_ns), seconds(last.to_ns));
    let device = device.device;
    Some(format!(
        "{records} records of {device} ({share} %) are missing in {gaps} {times} between {from:.3} s and {to:.3} s: the \
         program made them faster than they could be written;\n    \
         peak, what was live at it and counters are exact; curves are too low within a gap"
    ))
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1}", 100.0 * part as f64 / whole as f64) }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_scopes_are_shown_and_never_one_without_its_parents() {
        let rows = |own_peaks: &[u64]| -> Vec<analysis::ScopeRow> {
            own_peaks.iter().map(|&own_peak| analysis::ScopeRow { own_peak, ..Default::default() }).collect()
        };
        assert_eq!(smallest_shown(&rows(&[9, 5, 5]), 3), 0, "all of them");
        assert_eq!(smallest_shown(&rows(&[9, 8, 5, 7]), 3), 6);
        assert_eq!(smallest_shown(&rows(&[9, 5, 7, 7]), 2), 8, "equal ones go together");
    }
}
