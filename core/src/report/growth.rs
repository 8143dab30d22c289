//! Growth over time: an answer and a table of the rows that grow.

use super::device_memory::time;
use super::tables::more;
use super::{Cell, Section};
use crate::analysis::{GrowingRow, Growth, RowGrowth};
use crate::units::{Bytes, seconds};

/// Whether something grows, how fast and since when, and when the device will be full.
pub fn growth_answer(growth: &Growth) -> Vec<String> {
    let mut lines = match growth.grows() {
        Some(true) => grows(growth),
        Some(false) => vec![format!("Nothing grows on {}, by {}.", growth.device, growth.key.words())],
        None => undecided(growth),
    };
    if growth.below_threshold > 0 {
        let below = Bytes(growth.below_threshold);
        lines.push(format!("{below} at the end are in blocks below the threshold: whether these grow is not known."));
    }
    lines
}

fn grows(growth: &Growth) -> Vec<String> {
    let (Some(first), [steepest, rest @ ..]) = (growth.first(), growth.growing()) else { return Vec::new() };
    let rows = if rest.is_empty() { "1 row grows".to_owned() } else { format!("{} rows grow", rest.len() + 1) };
    let [all, most] = [growth.per_minute(), steepest.per_minute].map(Bytes);
    let [low, high] = [steepest.least_per_minute, steepest.most_per_minute].map(Bytes);
    let mut lines = vec![
        format!("{rows} on {}, {all} a minute.", growth.device),
        format!("Most of it: {}, {most} a minute ({low} to {high}).", steepest.label),
    ];
    if !rest.is_empty() {
        lines.push(format!("The first to grow: {}, since {:.3} s.", first.label, seconds(first.since_ns)));
    }
    lines.extend(full(growth));
    lines
}

fn undecided(growth: &Growth) -> Vec<String> {
    let on = growth.device;
    let may = growth.rows.iter().find_map(|row| match row.growth {
        RowGrowth::MayGrow(why) => Some((row, why)),
        RowGrowth::Grows => None,
    });
    let mut lines: Vec<String> = growth.undecided.iter().map(|why| format!("Undecided on {on}: {why}.")).collect();
    if let Some((row, why)) = may {
        let rate = Bytes(row.per_minute);
        let begin = if lines.is_empty() { format!("Undecided on {on}: ") } else { String::new() };
        lines.push(format!("{begin}{} may grow, {rate} a minute: {why}.", row.label));
    }
    lines
}

fn full(growth: &Growth) -> Option<String> {
    let (live, capacity) = (Bytes(growth.at_end), Bytes(growth.capacity?));
    let left = time(growth.full_in_ns()?);
    Some(format!("{live} of {capacity} are live at the end: at this rate the device is full in {left}."))
}

/// The rows that grow, and those that may grow.
pub fn growth_section(growth: &Growth, most: usize) -> Section {
    let columns = ["A minute", "Min", "Max", "Risen", "At end", "Since", growth.key.column()];
    let mut section = Section::of_columns("growth", format!("Growth by {}", growth.key.words()), &columns);
    section.is_estimate = growth.is_estimate;
    section.about = vec![
        format!(
            "A row grows if the least that it holds rises with every interval of {:.3} s{}",
            seconds(growth.interval_ns),
            if growth.older > 0 { " on average" } else { "" }
        ),
        "after the warm-up, the first 4 of 16.".to_owned(),
        "Min, Max     a minute, from the smallest and the largest step between intervals".to_owned(),
        "Risen        since the warm-up".to_owned(),
    ];
    if growth.older > 0 {
        section.about.push(format!(
            "The first {} of them are before the log: of these the least of each stack is known.",
            growth.older
        ));
    }
    section.rows = growth.rows.iter().take(most).map(cells).collect();
    if growth.rows.len() > most {
        section.partial_row(Vec::new(), more(growth.rows.len() - most));
    }
    section
}

fn cells(row: &GrowingRow) -> Vec<Cell> {
    let label = match row.growth {
        RowGrowth::Grows => row.label.clone(),
        RowGrowth::MayGrow(why) => format!("{} (may grow: {why})", row.label),
    };
    let bytes = [row.per_minute, row.least_per_minute, row.most_per_minute, row.risen, row.at_end].map(Cell::Sum);
    bytes.into_iter().chain([Cell::Time(row.since_ns), Cell::Text(label)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Key;
    use crate::recording::DeviceView;
    use crate::snapshot::testing::{LINE_7, LINE_9, Story};

    /// A block of 1 KiB each millisecond for 1.6 s, and one of 10 KiB each tenth millisecond.
    fn leaking() -> Story {
        let mut story = Story::cuda(0);
        for at in 0..1600 {
            story.at(1 + at * 1_000_000).alloc(at, 1024).on(LINE_7);
            if at % 10 == 0 {
                story.alloc(format!("large {at}"), 10 << 10).on(LINE_9);
            }
        }
        story.lasting(1_600_000_000);
        story
    }

    fn growth_of(story: &Story, capacity: Option<u64>) -> Growth {
        let mut data = story.build();
        let memory = |total| crate::snapshot::DeviceMemory { total, ..Default::default() };
        data.devices[0].memory = capacity.map(memory);
        Growth::of(&DeviceView::of(&data, &data.devices[0]), Key::Line)
    }

    #[test]
    fn the_answer_says_how_fast_and_when_the_device_is_full() {
        let growth = growth_of(&leaking(), Some(32_050 << 10));
        let expected = [
            "2 rows grow on cuda:0, 117.2 MiB a minute.",
            "Most of it: src/main.rs:9 (net::pad), 58.59 MiB a minute (58.59 MiB to 58.59 MiB).",
            "The first to grow: src/main.rs:9 (net::pad), since 0.000 s.",
            "3.125 MiB of 31.30 MiB are live at the end: at this rate the device is full in 14.4 s.",
        ];
        assert_eq!(growth_answer(&growth), expected);
        assert_eq!(growth_answer(&growth_of(&leaking(), None)), expected[..3]);
        let section = growth_section(&growth, 1);
        assert_eq!((section.rows.len(), section.rows[1].last()), (2, Some(&Cell::Text("(1 more rows)".to_owned()))));
    }

    #[test]
    fn what_is_undecided_is_said_with_the_row_that_may_grow() {
        let growth = growth_of(leaking().overwritten(100), None);
        assert_eq!(growth_answer(&growth)[0], "Undecided on cuda:0: the log lacks its beginning.");
        assert!(growth_answer(&growth)[1].starts_with("src/main.rs:9 (net::pad) may grow, "), "{growth:?}");
        let mut story = leaking();
        (0..1600).for_each(|label| _ = story.free(label));
        (0..1600).step_by(10).for_each(|label| _ = story.free(format!("large {label}")));
        let freed = growth_answer(&growth_of(&story, None));
        assert!(freed[0].starts_with("Undecided on cuda:0: src/main.rs:9 (net::pad) may grow, 5"), "{freed:?}");
        assert!(freed[0].ends_with(" or was freed as the program ended."), "{freed:?}");
        let nothing = growth_of(leaking().without_log(), None);
        assert_eq!(growth_answer(&nothing), ["Undecided on cuda:0: the recording has no log."]);
        let below = growth_answer(&growth_of(leaking().below_threshold(100), None));
        assert!(below.last().unwrap().starts_with("100 B at the end are in blocks below the threshold"), "{below:?}");
    }
}
