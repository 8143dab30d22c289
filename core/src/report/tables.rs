//! Tables of live memory, scopes, temporaries, blocks that are live twice, and older times.

use super::rows::Row as NamedRow;
use super::{Cell, NamedRows, ReportOptions, Section};
use crate::analysis::{
    self, Breakdown, BreakdownTable, CostRow, Key, LiveSet, ON_REQUEST, Part, Row, ScopeRow, Shown, TABLES,
    scopes_by_pattern,
};
use crate::recording::DeviceView;
use crate::units::Bytes;

/// The keys of the tables that are not breakdowns.
pub(super) const KEYS: [&str; 4] = ["scopes", "temporaries", "live_twice", "older_times"];
/// Rows with less than 1/200 of the total are folded.
const SMALL: u64 = 200;
const LINES: usize = 4;
/// The column with the sum of a row and all rows above it.
pub(crate) const CUMULATIVE: &str = "Cumulative";
/// The column with the largest temporary block of a row.
pub(crate) const TEMPORARY: &str = "Temporary";

/// The breakdown tables that belong to one of the places in `shown`, such as reports or failed assertions.
pub(super) fn sections(live: &LiveSet<'_>, shown: &[Shown], options: &ReportOptions) -> Vec<Section> {
    // A table that the user asked for is shown, whatever place it belongs to. If it has no content, it says why.
    let asked = |table: &BreakdownTable| {
        shown.contains(&Shown::Always)
            && table.shown != Shown::AtEnd
            && options.sections.iter().any(|asked| asked == table.key)
    };
    let matters = |table: &&BreakdownTable| shown.contains(&table.shown) && (table.matters)(live) || asked(table);
    let section = |table: &BreakdownTable| {
        let heading =
            if table.shown == Shown::AtEnd { "Still live at the end".to_owned() } else { options.moment.heading() };
        let title = format!("{heading}, by {}", table.by.words());
        if !table.nothing.is_empty() && !(table.matters)(live) {
            return Section {
                notes: vec![format!("({})", table.nothing)],
                ..Section::of_columns(table.key, title, &[])
            };
        }
        let section = match table.by {
            Key::ForwardLine | Key::Layer => with_parts(table, title, live, options),
            by => of_breakdown(table.key, &title, by.column(), &table.of(live), options),
        };
        Section { is_estimate: live.device.is_sample(), ..section }
    };
    // The tables of the forward pass come first, because the answer refers to their rows.
    ON_REQUEST.iter().chain(&TABLES).filter(matters).map(section).collect()
}

pub(super) fn of_breakdown(
    key: &'static str,
    title: &str,
    column: &'static str,
    breakdown: &Breakdown,
    options: &ReportOptions,
) -> Section {
    let mut section = Section::of_columns(key, title, &["Mem", "%", "Blocks", "Median", column]);
    let total = breakdown.total;
    let (shown, folded) = fold(&breakdown.rows, options.rows, total, |row| row.bytes);
    let median = |row: &Row| row.count.map_or(Cell::Unknown, |_| Cell::Bytes(row.median));
    section.rows_and_more(
        (shown, folded),
        |row| (Some(median(row)), &row.label),
        |rows| {
            let bytes = rows.iter().map(|row| row.bytes).sum();
            let count = rows.iter().map(|row| row.count).sum::<Option<u64>>().map_or(Cell::Unknown, Cell::Count);
            vec![Cell::Sum(bytes), Cell::Share { part: bytes, whole: total }, count]
        },
    );
    if column == "Location" {
        section.columns.insert(2, CUMULATIVE);
        let sums = shown.iter().scan(0, |sum, row| Some((*sum += row.bytes, *sum).1)).chain([total]);
        section.rows.iter_mut().zip(sums).for_each(|(row, sum)| row.insert(2, Cell::Sum(sum)));
    }
    if breakdown.rows.is_empty() {
        section.notes.push("(nothing)".to_owned());
    }
    section.named = Some(NamedRows::Live(NamedRow::first(NamedRow::all(breakdown), options.rows)));
    section
}

/// A table by line of the forward pass or by layer, with a column for each purpose of the memory.
fn with_parts(table: &BreakdownTable, title: String, live: &LiveSet<'_>, options: &ReportOptions) -> Section {
    let rows = live.costs(table.by);
    let of = |rows: &[CostRow], part: Part| -> u64 {
        rows.iter().filter_map(|cost| cost.parts.as_ref()).map(|parts| parts[part as usize]).sum()
    };
    let temporary = |rows: &[CostRow]| rows.iter().map(|cost| cost.largest_temporary).max().filter(|most| *most > 0);
    let columns: Vec<Part> = Part::ALL.into_iter().filter(|part| of(&rows, *part) > 0).collect();
    let has_temporaries = temporary(&rows).is_some();
    let words = columns.iter().map(|part| part.word()).chain(has_temporaries.then_some(TEMPORARY));
    let headings: Vec<&'static str> = ["Mem", "%"].into_iter().chain(words).chain([table.by.column()]).collect();
    let mut section = Section::of_columns(table.key, title, &headings);
    let breakdown = table.of(live);
    let cells = |rows: &[CostRow]| {
        let bytes = rows.iter().map(|cost| cost.row.bytes).sum();
        let part = |part: &Part| Some(of(rows, *part)).filter(|bytes| *bytes > 0).map_or(Cell::Nothing, Cell::Sum);
        let share = Cell::Share { part: bytes, whole: breakdown.total };
        let temporary = has_temporaries.then(|| temporary(rows).map_or(Cell::Nothing, Cell::Bytes));
        [Cell::Sum(bytes), share].into_iter().chain(columns.iter().map(part)).chain(temporary).collect::<Vec<Cell>>()
    };
    let rows = fold(&rows, options.rows, breakdown.total, |cost| cost.row.bytes);
    section.rows_and_more(rows, |cost| (None, &cost.row.label), cells);
    section.named = Some(NamedRows::Live(NamedRow::first(NamedRow::all_of(table, live), options.rows)));
    section
}

pub(in crate::report) fn more(rows: usize) -> String {
    format!("({rows} more rows)")
}

/// Splits sorted rows into shown and folded ones. Rows after the first `most`, and rows below half a per cent, are
/// folded. If the only row to fold is among the first `most`, it is shown.
fn fold<T>(rows: &[T], most: usize, total: u64, bytes: impl Fn(&T) -> u64) -> (&[T], &[T]) {
    let large = rows.iter().take_while(|row| bytes(row).saturating_mul(SMALL) >= total).count();
    // If all rows are small, the largest ones are shown.
    let large = if large == 0 { rows.len() } else { large };
    let shown = large.min(most);
    rows.split_at(if shown + 1 == rows.len() && shown < most { shown + 1 } else { shown })
}

pub(super) fn scopes(device: &DeviceView<'_>, options: &ReportOptions) -> Option<Section> {
    let (shown, hidden, least) = shown_scopes(device, options.rows);
    let columns = ["At peak", "%", "Own peak", "Total", "Calls", "Allocs", "Scope"];
    let mut section = Section::of_columns("scopes", "By scope", &columns);
    section.is_estimate = device.is_sample();
    let about = [
        "At peak   bytes of the peak that were allocated directly in the scope",
        "Own peak  peak of the bytes allocated in the scope or in nested scopes",
        "Total     peak of the whole device while the scope was open;",
        "          none of the three includes blocks below the threshold",
    ];
    section.about = about.map(str::to_owned).to_vec();
    let total = device.peak.total();
    let share = |bytes| vec![Cell::Sum(bytes), Cell::Share { part: bytes, whole: total }];
    for row in &shown {
        let name = format!("{}{}", "  ".repeat(row.depth.saturating_sub(1)), row.name);
        section.rows.push([share(row.at_peak), scope_cells(row), vec![Cell::Text(name)]].concat());
    }
    if !hidden.is_empty() {
        let label = format!("({} scopes whose own peak is below {})", hidden.len(), Bytes(least));
        section.partial_row(share(hidden.iter().map(|row| row.at_peak).sum()), label);
    }
    let in_scopes: u64 = shown.iter().chain(&hidden).map(|row| row.at_peak).sum();
    section.partial_row(share(total.saturating_sub(in_scopes)), "(everything else)".to_owned());
    (!shown.is_empty() || !hidden.is_empty()).then_some(section)
}

/// The largest scopes, the others, and the smallest own peak that is shown. As scopes form a tree, about twice as many
/// as `rows` are shown. Scopes whose names differ only in a number are merged.
pub(crate) fn shown_scopes(device: &DeviceView<'_>, rows: usize) -> (Vec<ScopeRow>, Vec<ScopeRow>, u64) {
    let all = scopes_by_pattern(analysis::scopes(device));
    let least = smallest_shown(all.iter().map(|row| row.own_peak), 2 * rows);
    let (shown, hidden) = all.into_iter().partition(|row| row.own_peak >= least);
    (shown, hidden, least)
}

fn scope_cells(row: &ScopeRow) -> Vec<Cell> {
    let total = row.total_peak.map_or(Cell::Unknown, Cell::Sum);
    vec![Cell::Sum(row.own_peak), total, Cell::Count(row.calls), Cell::Count(row.allocations)]
}

/// The smallest peak that is shown, chosen so that about `most` rows are shown. A scope's own peak is at least that of
/// its nested scopes, so a shown scope always follows its parents.
fn smallest_shown(peaks: impl Iterator<Item = u64>, most: usize) -> u64 {
    let mut peaks: Vec<u64> = peaks.collect();
    peaks.sort_unstable_by(|a, b| b.cmp(a));
    // Rows equal to the first that does not fit are hidden as well.
    peaks.get(most).map_or(0, |first_out| first_out + 1)
}

pub(super) fn temporaries(device: &DeviceView<'_>, options: &ReportOptions) -> Option<Section> {
    let rows = analysis::temporaries(device);
    let of = if device.overwritten > 0 { ", in the records that the log still holds" } else { "" };
    let recorded = if device.is_sample() { " of the sample" } else { "" };
    let mut section = Section::of_columns("temporaries", "Temporaries", &["Total", "Blocks", "Largest", "Location"]);
    section.is_estimate = device.is_sample();
    section.about = vec![format!("Freed before {} more blocks{recorded} were allocated{of}.", analysis::SOON)];
    let total = rows.iter().map(|row| row.bytes).fold(0, u64::saturating_add);
    let shown = fold(&rows, options.rows / 2, total, |row| row.bytes);
    section.rows_and_more(
        shown,
        |row| (Some(Cell::Bytes(row.largest)), &row.label),
        |rows| {
            let bytes = rows.iter().map(|row| row.bytes).fold(0, u64::saturating_add);
            vec![Cell::Sum(bytes), Cell::Count(rows.iter().map(|row| row.count).sum())]
        },
    );
    (!rows.is_empty()).then_some(section)
}

pub(super) fn twice(device: &DeviceView<'_>, options: &ReportOptions) -> Option<Section> {
    let found = device.live_twice();
    let mut section =
        Section::of_columns("live_twice", "Live twice", &["Older", "Peak then", "Blocks", "Each", "Location"]);
    section.about = vec![
        "Blocks of one size, held by one function and freed like variables at its end.".to_owned(),
        "If the older ones are no longer read, as after `let x = f(&x)`, dropping each once".to_owned(),
        "the next exists lowers the peak to \"Peak then\".".to_owned(),
    ];
    for row in found.iter().take(options.rows / 2) {
        let then = row.peak_without.map_or(Cell::Unknown, |bytes| Cell::Bytes(bytes + device.peak.below_threshold));
        let mut lines = first_lines(&row.lines).into_iter();
        let first = Cell::Text(lines.next().unwrap_or_default());
        section.rows.push(vec![Cell::Bytes(row.older), then, Cell::Count(row.count), Cell::Bytes(row.size), first]);
        lines.for_each(|line| section.partial_row(Vec::new(), format!("then {line}")));
    }
    (!found.is_empty()).then_some(section)
}

/// The time spans before the log with the highest peaks, each with its peak.
pub(super) fn older_times(device: &DeviceView<'_>, options: &ReportOptions) -> Option<Section> {
    let times = analysis::older_peaks(device);
    let columns = ["From", "To", "Highest", "At", "Mem", "Location"];
    let mut section = Section::of_columns("older_times", "Before the log", &columns);
    section.is_estimate = device.is_sample();
    section.about = vec![
        "Periods whose records were deleted to keep the stream within its budget, each with its highest moment and the"
            .to_owned(),
        "line that held most then; `--json` has all lines. Blocks below the threshold are not included.".to_owned(),
    ];
    let least = smallest_shown(times.iter().map(|time| time.bytes), options.rows);
    let (shown, hidden): (Vec<_>, Vec<_>) = times.iter().partition(|time| time.bytes >= least);
    for time in shown {
        let (bytes, label) =
            time.by_line.first().map_or((Cell::Unknown, ""), |line| (Cell::Sum(line.bytes), &line.label));
        let cells = [Cell::Time(time.from_ns), Cell::Time(time.to_ns), Cell::Sum(time.bytes), Cell::Time(time.time_ns)];
        section.rows.push([&cells[..], &[bytes, Cell::Text(label.to_owned())]].concat());
    }
    if !hidden.is_empty() {
        section.partial_row(Vec::new(), more(hidden.len()));
    }
    if times.iter().any(|time| time.lacks_records) {
        section.notes =
            vec!["In some of these periods records are missing: the real peak may have been higher.".to_owned()];
    }
    (!times.is_empty()).then_some(section)
}

/// The first lines, and the number of the others.
pub(super) fn first_lines(lines: &[String]) -> Vec<String> {
    let (shown, rest) = lines.split_at(lines.len().min(LINES));
    let more = (!rest.is_empty()).then(|| format!("{} more lines", rest.len()));
    shown.iter().cloned().chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Moment;
    use crate::report::Report;
    use crate::snapshot::testing::{LINE_7, LINE_9, Story, two_lines_and_a_temporary};
    use crate::snapshot::{OlderRow, OlderTime, SnapshotData, StackId};

    fn asked_for(data: &SnapshotData, key: &str, moment: Moment) -> Vec<Section> {
        let options = ReportOptions { sections: vec![key.to_owned()], moment, ..ReportOptions::default() };
        Report::of(data, &options).unwrap().sections
    }

    #[test]
    fn the_highest_of_the_times_before_the_log_are_shown_in_their_order() {
        let mut data = two_lines_and_a_temporary();
        let row = |of: StackId, at_highest| OlderRow { of, least: 0, at_highest };
        let time = |from_ns, highest, stacks| {
            let (to_ns, highest_ns) = (from_ns + 1_000_000_000, from_ns + 1);
            OlderTime { from_ns, to_ns, highest, highest_ns, stacks, ..OlderTime::default() }
        };
        data.devices[0].older = vec![
            time(0, 5 << 20, vec![row(LINE_7, 4 << 20), row(LINE_9, 1 << 20)]),
            time(1_000_000_000, 100, Vec::new()),
            time(2_000_000_000, 6 << 20, vec![row(LINE_9, 6 << 20)]),
        ];
        let section = |rows| {
            let options = ReportOptions { rows, sections: vec!["older_times".to_owned()], ..ReportOptions::default() };
            Report::of(&data, &options).unwrap().sections.remove(0)
        };
        let (two, all) = (section(2), section(3));
        assert_eq!((two.rows.len(), all.rows.len()), (3, 3));
        assert_eq!(two.rows[2].last(), Some(&Cell::Text("(1 more rows)".to_owned())));
        let (second, millisecond) = (1_000_000_000, 1);
        let line = Cell::Text("src/model.rs:7 (Net::forward)".to_owned());
        let first =
            [Cell::Time(0), Cell::Time(second), Cell::Sum(5 << 20), Cell::Time(millisecond), Cell::Sum(4 << 20), line];
        assert_eq!(two.rows[0], first);
        assert_eq!((&two.rows[1][2], &all.rows[1][4]), (&Cell::Sum(6 << 20), &Cell::Unknown));
        assert!(two.notes.is_empty());
        data.devices[0].older[1].lacks_records = true;
        let options = ReportOptions { sections: vec!["older_times".to_owned()], ..ReportOptions::default() };
        assert_eq!(Report::of(&data, &options).unwrap().sections[0].notes.len(), 1);
    }

    #[test]
    fn every_table_that_is_asked_for_is_shown_or_says_why_there_is_none() {
        let mut bare = Story::cpu();
        bare.alloc("block", 2000).on(crate::snapshot::StackId::NONE);
        for data in [two_lines_and_a_temporary(), bare.build()] {
            for moment in [Moment::Peak, Moment::End] {
                let tables = TABLES.iter().chain(&ON_REQUEST).filter(|table| table.shown != Shown::AtEnd);
                for key in tables.map(|table| table.key) {
                    let sections = asked_for(&data, key, moment.clone());
                    assert_eq!(sections.len(), 1, "{key} {moment:?}");
                    assert!(sections[0].rows.is_empty() != sections[0].notes.is_empty(), "{key}: {sections:?}");
                }
            }
        }
        let mut scoped = Story::cpu();
        scoped.enter("step").alloc("block", 2000).on(LINE_7).leave("step");
        let rows = &asked_for(&scoped.build(), "peak_by_scope", Moment::Peak)[0].rows;
        assert!(rows.iter().any(|row| row.contains(&Cell::Text("step".to_owned()))), "{rows:?}");
        let notes = &asked_for(&bare.build(), "peak_by_name", Moment::Peak)[0].notes;
        assert_eq!(*notes, ["(no names are recorded: `memtrace::name` names a block)"]);
    }

    #[test]
    fn the_largest_scopes_are_shown_and_never_one_without_its_parents() {
        assert_eq!(smallest_shown([9, 5, 5].into_iter(), 3), 0, "all of them");
        assert_eq!(smallest_shown([9, 8, 5, 7].into_iter(), 3), 6);
        assert_eq!(smallest_shown([9, 5, 7, 7].into_iter(), 2), 8, "equal ones go together");
    }

    #[test]
    fn many_lines_are_four_and_a_number() {
        let lines: Vec<String> = (1..=6).map(|line| format!("x.rs:{line}")).collect();
        assert_eq!(
            first_lines(&lines).join(", then "),
            "x.rs:1, then x.rs:2, then x.rs:3, then x.rs:4, then 2 more lines"
        );
        assert_eq!(first_lines(&lines[..4]), lines[..4]);
    }

    #[test]
    fn lines_have_a_running_sum_that_ends_at_the_total() {
        let row = |bytes| Row { bytes, ..Row::default() };
        let breakdown = Breakdown { rows: [500, 400, 2, 1].map(row).to_vec(), total: 903 };
        let section = |column| of_breakdown("", "", column, &breakdown, &ReportOptions::default());
        let lines = section("Location");
        assert_eq!(lines.columns[2], CUMULATIVE);
        let sums: Vec<_> = lines.rows.iter().map(|row| row[2].clone()).collect();
        assert_eq!(sums, [500, 900, 903].map(Cell::Sum));
        assert!(!section("Scope").columns.contains(&CUMULATIVE));
        let shown = |width| {
            let report = crate::report::Report { sections: vec![lines.clone()], ..Default::default() };
            crate::export::Text { width, ..Default::default() }.show(&report)
        };
        assert_eq!([shown(109), shown(110)].map(|text| text.contains(CUMULATIVE)), [false, true]);
    }

    #[test]
    fn the_blocks_of_folded_rows_are_unknown_if_those_of_one_are() {
        let row = |bytes, count| Row { bytes, count, ..Row::default() };
        let folded = |last| {
            let breakdown = Breakdown { rows: vec![row(990, Some(1)), row(4, Some(2)), row(3, last)], total: 997 };
            of_breakdown("", "", "", &breakdown, &ReportOptions::default()).rows[1][2].clone()
        };
        assert_eq!([folded(Some(5)), folded(None)], [Cell::Count(7), Cell::Unknown]);
    }

    #[test]
    fn rows_below_half_a_per_cent_are_folded_unless_it_is_a_single_one() {
        let shown = |rows: &[u64], most| fold(rows, most, rows.iter().sum(), |row| *row).0.len();
        assert_eq!(shown(&[990, 5, 3, 2], 20), 2);
        assert_eq!(shown(&[990, 8, 2], 20), 3, "one alone takes no more room than the row that would stand for it");
        assert_eq!(shown(&[990, 8, 2], 2), 2);
        assert_eq!(shown(&[1; 1000], 20), 20, "all are small");
        assert_eq!((shown(&[], 20), shown(&[0, 0], 20)), (0, 2));
    }
}
