//! An allocation that was refused, as text: what was asked for, what there was, who holds the rest.

use super::table::{Cut, Table};
use crate::analysis::{self, Breakdown, PostMortem, device_or_main};
use crate::snapshot::{Device, SnapshotData};
use crate::units::{Bytes, grouped};

/// Lines and scopes shown.
const ROWS: usize = 10;

/// The text, `width` characters wide; empty if the device refused nothing.
pub fn to_string(data: &SnapshotData, device: Option<Device>, width: usize) -> String {
    let Some(device) = device_or_main(data, device) else { return String::new() };
    let Some(post_mortem) = analysis::post_mortem(data, device) else { return String::new() };
    let mut text = format!("memtrace: {} is out of memory\n", device.device);
    let mut line = |line: &str| text.extend([line, "\n"]);
    what_there_was(&post_mortem).iter().for_each(|text| line(text));
    line("");
    what_helps(&post_mortem).iter().for_each(|text| line(text));
    for (heading, last, breakdown) in
        [("Live, by line", "Location", &post_mortem.lines), ("Live, by scope", "Scope", &post_mortem.scopes)]
    {
        line("");
        line(heading);
        table(breakdown, last).lines(width).iter().for_each(|text| line(text));
    }
    text
}

fn what_there_was(post_mortem: &PostMortem) -> Vec<String> {
    let refused = &post_mortem.refused;
    let known = |bytes: Option<u64>| bytes.map_or("not known".to_owned(), |bytes| Bytes(bytes).to_string());
    let total = refused.device_total.map_or(String::new(), |total| format!(" of {}", Bytes(total)));
    let estimated = if post_mortem.holes.estimated { ", estimated" } else { "" };
    vec![
        format!("Asked for        {} ({} bytes)", Bytes(refused.size), grouped(refused.size)),
        format!("Free             {}{total}, counting other processes", known(refused.device_free)),
        format!("Reserved, unused {} in the driver's pool", known(post_mortem.reserved_unused)),
        format!("Largest hole     {} between live blocks{estimated}", Bytes(post_mortem.holes.largest_hole)),
        format!("Live             {} recorded", Bytes(post_mortem.lines.total)),
    ]
}

fn what_helps(post_mortem: &PostMortem) -> Vec<String> {
    let mut lines = what_was_missing(post_mortem);
    lines.extend(post_mortem.temporaries.as_ref().map(|row| {
        format!("The largest temporary took {}, at {}: smaller batches make it smaller.", Bytes(row.largest), row.label)
    }));
    lines
}

fn what_was_missing(post_mortem: &PostMortem) -> Vec<String> {
    let missing = Bytes(post_mortem.missing);
    match post_mortem.lines_to_drop {
        Some(0) => vec![
            "It would have fitted into what is free and what is reserved and unused, were that in one piece:"
                .to_owned(),
            "give it back before the call (cuMemPoolTrimTo), or take the large blocks first.".to_owned(),
        ],
        Some(1) => vec![format!("{missing} more were needed: the first line below holds that much.")],
        Some(lines) => vec![format!("{missing} more were needed: the first {lines} lines below hold that much.")],
        None => vec![format!("{missing} more were needed, which is more than all that is recorded as live.")],
    }
}

fn table(breakdown: &Breakdown, last: &'static str) -> Table {
    let mut table = Table::new(&["Mem", "Count", last], if last == "Scope" { Cut::End } else { Cut::Start });
    for row in breakdown.largest(ROWS).rows {
        table.row(vec![Bytes(row.bytes).to_string(), row.count.map_or("-".to_owned(), grouped), row.label]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::{LINE_7, Trace};

    #[test]
    fn the_request_and_what_helps_are_named() {
        let mut trace = Trace::cuda(0);
        trace.enter("forward").alloc("input", 2000).on(LINE_7).leave("forward");
        assert_eq!(to_string(&trace.build(), None, 100), "");
        let text = to_string(&trace.refused(1001, Some(1000)).build(), None, 100);
        for expected in
            ["cuda:0 is out of memory", "(1,001 bytes)", "1 B more were needed: the first line", "Live, by scope"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
