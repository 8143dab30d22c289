//! Comparison of attribution with labels, by events and by bytes.

use std::collections::BTreeMap;

use memtrace::attribute::{AllocationSite, Attribution, allocation_site, operator};
use memtrace::snapshot::{ContextId, Frame, Record, RecordKind};
use memtrace::{Device, SnapshotData};

/// Events and bytes whose attribution is right, unknown or wrong.
#[derive(Default)]
struct Sums {
    events: [u64; 3],
    bytes: [u64; 3],
}

#[derive(Clone, Copy)]
enum Verdict {
    Right,
    Unknown,
    Wrong,
}

impl Sums {
    fn add(&mut self, verdict: Verdict, bytes: u64) {
        self.events[verdict as usize] += 1;
        self.bytes[verdict as usize] += bytes;
    }

    fn share(&self, verdict: Verdict) -> f64 {
        self.bytes[verdict as usize] as f64 / self.bytes.iter().sum::<u64>().max(1) as f64
    }

    fn text(&self) -> String {
        let [right, unknown, wrong] = [Verdict::Right, Verdict::Unknown, Verdict::Wrong].map(|v| 100. * self.share(v));
        format!("{right:.3} % right, {unknown:.3} % unknown, {wrong:.3} % wrong ({:?} events)", self.events)
    }
}

/// Results of one program.
#[derive(Default)]
pub(crate) struct Rates {
    operator: Sums,
    line: Sums,
    /// Events and bytes without a label: of worker threads, and of the program around its operators.
    unlabelled: [u64; 2],
    wrong: BTreeMap<String, u64>,
}

impl Rates {
    pub(crate) fn of(data: &SnapshotData) -> Self {
        let (mut rates, attribution) = (Self::default(), Attribution::new(data));
        let device = data.device(Device::Cpu);
        let records = device.map_or(&[][..], |device| &device.records);
        records
            .iter()
            .filter(|record| record.kind == RecordKind::Alloc)
            .for_each(|record| rates.record(&attribution, record));
        rates
    }

    fn record(&mut self, data: &Attribution<'_>, record: &Record) {
        let Some(label) = label(data, record.context) else {
            self.unlabelled = [self.unlabelled[0] + 1, self.unlabelled[1] + record.size];
            return;
        };
        let operator = operator(data, record.stack);
        let verdict = match operator {
            Some(operator) if label.operators.contains(&"backward") && operator.is_backward => Verdict::Right,
            Some(operator) if !operator.is_backward && label.operators.contains(&operator.root) => Verdict::Right,
            Some(operator) => {
                self.is_wrong(
                    format!("operator {operator} for {} at {}", label.operators.join("|"), label.place),
                    record.size,
                );
                Verdict::Wrong
            }
            None => Verdict::Unknown,
        };
        self.operator.add(verdict, record.size);
        let verdict = match allocation_site(data, record.stack) {
            AllocationSite::User(frame) if is_at(frame, label.place) => Verdict::Right,
            // A name without a line makes no claim about the line.
            AllocationSite::User(frame) if frame.line.is_none() => Verdict::Unknown,
            AllocationSite::User(frame) => {
                self.is_wrong(format!("line {:?}:{:?} for {}", frame.file, frame.line, label.place), record.size);
                Verdict::Wrong
            }
            AllocationSite::Framework(_) | AllocationSite::Unknown => Verdict::Unknown,
        };
        self.line.add(verdict, record.size);
    }

    fn is_wrong(&mut self, what: String, bytes: u64) {
        *self.wrong.entry(what).or_default() += bytes;
    }

    pub(crate) fn print(&self, program: &str) {
        let [events, bytes] = self.unlabelled;
        println!("{program:8} operator  {}", self.operator.text());
        println!("{:8} line      {}", "", self.line.text());
        println!(
            "{:8} labelled  {} bytes; {events} events, {bytes} bytes besides",
            "",
            self.operator.bytes.iter().sum::<u64>()
        );
        let mut wrong: Vec<_> = self.wrong.iter().collect();
        wrong.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
        wrong.iter().take(12).for_each(|(what, bytes)| println!("{:8} wrong     {bytes} bytes: {what}", ""));
    }

    /// With `strict`, enough must be known, too.
    pub(crate) fn are_good(&self, strict: bool) -> bool {
        let few_wrong = [&self.operator, &self.line].iter().all(|sums| sums.share(Verdict::Wrong) <= 0.001);
        let known = self.operator.share(Verdict::Right) >= 0.995 && self.line.share(Verdict::Right) >= 0.99;
        few_wrong && (known || !strict) && self.operator.bytes.iter().sum::<u64>() > 0
    }
}

/// Abbreviations of the operators that compose candle_nn's: a label must fit into one line.
const COMPOSED: [(&str, &str); 2] = [
    ("LOG_SOFTMAX", "log_softmax/max_keepdim|broadcast_sub|exp|sum_keepdim|log"),
    (
        "GROUP_NORM",
        "sum_keepdim|mean_keepdim|broadcast_sub|sqr|affine|add|sqrt|broadcast_div|broadcast_mul|broadcast_add",
    ),
];

/// The program's label of a call.
struct Label<'a> {
    operators: Vec<&'a str>,
    /// `src/mlp.rs:12`
    place: &'a str,
}

/// The innermost label of a context.
fn label(data: &SnapshotData, context: ContextId) -> Option<Label<'_>> {
    let names = data.context_names(context).into_iter().rev();
    let label = names.filter_map(|name| name.strip_prefix("op ")).next()?;
    let (operators, place) = label.split_once(' ')?;
    let composed = COMPOSED.iter().find(|(word, _)| *word == operators);
    let operators = composed.map_or(operators, |(_, operators)| operators);
    let (operators, parts) = operators.split_once('/').unwrap_or((operators, ""));
    // Without line numbers, inlined calls are unknown, so the composing operator is as precise as possible.
    let parts = parts.split('|').filter(|_| data.health.no_line_numbers);
    Some(Label { operators: operators.split('|').chain(parts).collect(), place })
}

fn is_at(frame: &Frame, place: &str) -> bool {
    let is_line = |line: &str| frame.line.is_some_and(|known| known.to_string() == line);
    place.rsplit_once(':').is_some_and(|(file, line)| frame.file_or_empty().ends_with(file) && is_line(line))
}
