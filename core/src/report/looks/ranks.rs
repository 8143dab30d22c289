//! The ranks, one line each.

use std::ops::Range;

use super::options::{LookOptions, ROOM, WatchedFile};
use crate::analysis::{DeviceLook, Looks};
use crate::report::{Cell, Section};

pub(super) fn section(files: &[WatchedFile], options: &LookOptions) -> Section {
    let all = ["Rank", "Device", "Live", "Peak", "Headroom", "Recording"];
    let columns: &[&'static str] = if options.width < ROOM[1] { &["Rank", "Live", "Recording"] } else { &all };
    let mut section = Section::of_columns("ranks", "Ranks", columns);
    let shown = around(options.chosen, files.len(), options.ranks);
    for at in shown.clone() {
        let mut row = cells(&files[at], at == options.chosen);
        if columns.len() < all.len() {
            row = [0, 2, 5].into_iter().filter_map(|at| row.get(at).cloned()).collect();
        }
        section.rows.push(row);
    }
    if shown.len() < files.len() {
        section.partial_row(Vec::new(), format!("({} more ranks)", files.len() - shown.len()));
    }
    section
}

/// `most` positions of `all`, with the chosen one near their middle.
fn around(chosen: usize, all: usize, most: usize) -> Range<usize> {
    let first = chosen.saturating_sub(most / 2).min(all.saturating_sub(most));
    first..all.min(first + most.max(1))
}

fn cells(file: &WatchedFile, is_chosen: bool) -> Vec<Cell> {
    let mark = if is_chosen { ">" } else { "" };
    let look = file.looks.as_ref().map(Looks::last);
    let main = look.and_then(|look| look.devices.first());
    let rank = look.and_then(|look| look.rank.process.rank).map_or("-".to_owned(), |rank| rank.to_string());
    let end = match (file.has_ended, look.is_some_and(|look| look.rank.is_cut_off), &file.problem) {
        (_, _, Some(_)) => " (not read)",
        (true, true, _) => " (killed)",
        (true, false, _) => " (ended)",
        (false, ..) => "",
    };
    let figure = |of: fn(&DeviceLook) -> u64| main.map_or(Cell::Unknown, |main| Cell::Sum(of(main)));
    vec![
        Cell::Text(format!("{mark}{rank}")),
        main.map_or(Cell::Unknown, |main| Cell::Text(main.peak.device.to_string())),
        figure(|main| main.live),
        figure(|main| main.peak.bytes),
        main.and_then(|main| main.peak.headroom()).map_or(Cell::Unknown, Cell::Signed),
        Cell::Text(format!("{}{end}", file.file)),
    ]
}
