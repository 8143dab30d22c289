//! Cache lines that two threads write when they allocate in turns. valgrind reports each store.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Stores to these addresses mark the beginning and the end of a turn; see benches/record/alternate.rs.
const MARKS: u64 = 0x6000_0000_0000;
const END: u64 = MARKS + 0x800;

const LINE: u64 = 64;
/// The mean number of lines that a free and an allocation write, over all such pairs.
pub(super) struct SharedLines {
    /// Lines that the other thread wrote in the turn before.
    pub(super) contended: f64,
    /// Lines that the other thread writes at any time.
    pub(super) shared: f64,
}

impl SharedLines {
    /// Runs the benchmark, with or without a queue for threads that meet.
    pub(super) fn count(bench: &Path, meet: bool) -> Result<Self> {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=lackey", "--trace-mem=yes", "--fair-sched=yes"]).arg(bench).arg("--alternate");
        valgrind.args(meet.then_some("meet")).stderr(Stdio::piped());
        let mut child = valgrind.spawn()?;
        let turns = turns(BufReader::new(child.stderr.take().context("it has an output")?))?;
        ensure!(child.wait()?.success(), "valgrind failed");
        ensure!(turns.len() > 1000, "{} turns were marked", turns.len());
        Ok(Self::of(&turns))
    }

    fn of(turns: &[Turn]) -> Self {
        let mut writers: HashMap<u64, [bool; 2]> = HashMap::new();
        for turn in turns {
            turn.lines.iter().for_each(|line| writers.entry(*line).or_default()[turn.thread] = true);
        }
        let shared = turns.iter().map(|turn| turn.lines.iter().filter(|line| writers[line] == [true; 2]).count());
        let contended = turns.windows(2).map(|pair| pair[1].lines.intersection(&pair[0].lines).count());
        let mean = |lines: usize| lines as f64 / turns.len() as f64;
        Self { contended: mean(contended.sum()), shared: mean(shared.sum()) }
    }
}

/// The lines that a thread wrote in a turn.
struct Turn {
    thread: usize,
    lines: HashSet<u64>,
}

/// Reads ` S 1ffe,8` for a store, ` M 1ffe,8` for an addition and the like.
fn turns(trace: impl BufRead) -> Result<Vec<Turn>> {
    let (mut turns, mut open) = (Vec::new(), None);
    for line in trace.split(b'\n') {
        let Some(address) = stored(&line?) else { continue };
        match address.wrapping_sub(MARKS) / LINE {
            thread @ 0..2 => open = Some(Turn { thread: thread as usize, lines: HashSet::new() }),
            _ if address == END => turns.extend(open.take()),
            _ => open.iter_mut().for_each(|turn: &mut Turn| {
                turn.lines.insert(address / LINE);
            }),
        }
    }
    Ok(turns)
}

fn stored(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?;
    let store = text.strip_prefix(" S ").or_else(|| text.strip_prefix(" M "))?;
    u64::from_str_radix(store.split_once(',')?.0, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_contended_where_the_turn_before_wrote_it_and_shared_where_both_threads_do() {
        let turn = |thread: u64, lines: &[u64]| {
            let mark = format!(" S {:x},8\n", MARKS + thread * LINE);
            let stores: String =
                lines.iter().map(|line| format!("I 12,3\n L 40,8\n M {:x},4\n", line * LINE)).collect();
            format!("{mark}{stores} S {END:x},8\n S 4000,8\n")
        };
        // Both write line 7 in each turn, line 9 in the first and the last turn, and one line of their own.
        let trace = turn(0, &[7, 9, 1]) + &turn(1, &[7, 2]) + &turn(0, &[7, 1]) + &turn(1, &[7, 9, 2]);
        let lines = SharedLines::of(&turns(trace.as_bytes()).unwrap());
        assert_eq!((lines.contended, lines.shared), (3. / 4., 6. / 4.));
    }
}
