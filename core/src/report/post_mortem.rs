//! Post-mortem of a refused allocation: the request, what was available, what holds the rest, and what would help.

use super::answer::is_integrated;
use super::{Report, ReportOptions, Section, findings, tables};
use crate::analysis::{self, PostMortem};
use crate::recording::DeviceView;
use crate::snapshot::{Device, DeviceSnapshot};
use crate::units::{Bytes, grouped};

const ROWS: usize = 10;

pub(super) fn report(device: &DeviceView<'_>) -> Option<Report> {
    let post_mortem = analysis::post_mortem(device)?;
    let options = ReportOptions { rows: ROWS, ..ReportOptions::default() };
    let by_line = tables::of_breakdown("live_by_line", "Live, by line", "Location", &post_mortem.lines, &options);
    let by_scope = tables::of_breakdown("live_by_scope", "Live, by scope", "Scope", &post_mortem.scopes, &options);
    Some(Report {
        title: match device.device {
            Device::Cpu => "memtrace: the heap is out of memory".to_owned(),
            device => format!("memtrace: {device} is out of memory"),
        },
        answer: what_helps(&post_mortem, device.device),
        findings: findings(device),
        totals: what_there_was(&post_mortem, device),
        sections: [by_line, by_scope].map(|section| Section { is_estimate: device.is_sample(), ..section }).to_vec(),
        ..Report::default()
    })
}

fn what_there_was(post_mortem: &PostMortem, device: &DeviceSnapshot) -> Vec<(&'static str, String)> {
    let refused = &post_mortem.refused;
    let known = |bytes: Option<u64>| bytes.map_or("not known".to_owned(), |bytes| Bytes(bytes).to_string());
    let total = refused.device_total.map_or(String::new(), |total| format!(" of {}", Bytes(total)));
    let estimated = if post_mortem.holes.estimated { ", estimated" } else { "" };
    let free = format!("{}{total}", known(refused.device_free));
    let mut lines = vec![("Requested", format!("{} ({} bytes)", Bytes(refused.size), grouped(refused.size)))];
    let others = if is_integrated(device) { "other processes and the page cache" } else { "other processes" };
    if device.device == Device::Cpu {
        lines.extend(refused.device_total.map(|_| ("Address space", format!("{free} free: the limit is ulimit -v's"))));
    } else {
        lines.extend([
            ("Free", format!("{free}, with {others} counted as used")),
            ("Reserved, unused", format!("{} in the driver's pool", known(post_mortem.reserved_unused))),
            ("Largest hole", format!("{} between live blocks{estimated}", Bytes(post_mortem.holes.largest_hole))),
        ]);
    }
    lines.push(("Live", format!("{} recorded", Bytes(post_mortem.lines.total))));
    lines
}

fn what_helps(post_mortem: &PostMortem, device: Device) -> Vec<String> {
    let mut lines = what_was_missing(post_mortem, device);
    lines.extend(post_mortem.temporaries.as_ref().map(|row| {
        format!("The largest temporary took {}, at {}: smaller batches make it smaller.", Bytes(row.largest), row.label)
    }));
    lines
}

fn what_was_missing(post_mortem: &PostMortem, device: Device) -> Vec<String> {
    let missing = Bytes(post_mortem.missing);
    let is_limited = post_mortem.refused.device_total.is_some();
    match post_mortem.lines_to_drop {
        _ if device == Device::Cpu && !is_limited => {
            vec!["The system's allocator does not say why: the address space has no limit.".to_owned()]
        }
        Some(0) if device == Device::Cpu => {
            vec!["The free address space would have sufficed, but not in one piece.".to_owned()]
        }
        Some(0) => vec![
            "The free memory and the unused memory of the pool would have sufficed, but not in one piece:".to_owned(),
            "release unused memory before the call (cuMemPoolTrimTo), or allocate large blocks first.".to_owned(),
        ],
        Some(1) => vec![format!("{missing} more were needed: the first line below holds that much.")],
        Some(lines) => vec![format!("{missing} more were needed: the first {lines} lines below hold that much.")],
        None => vec![format!("{missing} more were needed, more than all recorded live blocks hold.")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Text;
    use crate::snapshot::testing::{LINE_7, Story};
    use crate::snapshot::{DeviceMemory, UnifiedMemory};

    #[test]
    fn the_request_and_what_helps_are_named() {
        let mut trace = Story::cuda(0);
        trace.enter("forward").alloc("input", 2000).on(LINE_7).leave("forward");
        let report = |trace: &Story| Report::of_refusal(&trace.build(), trace.device().device);
        assert_eq!(report(&trace), None);
        let text = Text { width: 100, ..Text::default() }.show(&report(trace.refused(1001, Some(1000))).unwrap());
        for expected in
            ["cuda:0 is out of memory", "(1,001 bytes)", "1 B more were needed: the first line", "Live, by scope"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn what_an_integrated_gpu_calls_free_is_without_the_page_cache() {
        let said = |unified| {
            let mut trace = Story::cuda(0);
            trace.memory_of_device(DeviceMemory { unified, ..DeviceMemory::default() });
            let data = trace.alloc("kept", 3000).on(LINE_7).refused(1001, Some(1000)).build();
            let answer = Report::of(&data, &crate::report::ReportOptions::default()).unwrap().answer.join(" ");
            (Text::default().show(&Report::of_refusal(&data, Device::Cuda(0)).unwrap()), answer)
        };
        let (post_mortem, answer) = said(Some(UnifiedMemory::default()));
        assert!(post_mortem.contains("with other processes and the page cache counted as used"), "{post_mortem}");
        assert!(answer.contains("with 1000 B free beside the page cache."), "{answer}");
        let (post_mortem, answer) = said(None);
        assert!(!post_mortem.contains("page cache") && answer.contains("with 1000 B free."), "{post_mortem} {answer}");
    }

    #[test]
    fn the_heaps_limit_is_named_if_it_has_one() {
        let show = |free: Option<u64>, size| {
            let mut trace = Story::cpu();
            trace.alloc("kept", 3000).on(LINE_7).refused(size, free);
            let mut data = trace.build();
            data.devices[0].ooms[0].device_total = free.map(|_| 4000);
            Text { width: 100, ..Text::default() }.show(&Report::of_refusal(&data, Device::Cpu).unwrap())
        };
        let limited = show(Some(500), 1500);
        for expected in [
            "the heap is out of memory",
            "500 B of 3.906 KiB free: the limit is ulimit -v's",
            "1000 B more were needed: the first line",
        ] {
            assert!(limited.contains(expected), "{expected}: {limited}");
        }
        assert!(!limited.contains("pool"), "{limited}");
        assert!(show(Some(500), 400).contains("not in one piece."));
        assert!(show(None, 400).contains("does not say why"));
    }
}
