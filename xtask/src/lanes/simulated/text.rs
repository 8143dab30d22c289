//! Compares the output of a program in two runs.

/// The lines without memtrace's own output and without parts that differ between runs: times, and tables sorted by
/// time.
pub(super) fn timeless(text: &str) -> Vec<String> {
    let mut kept = Vec::new();
    let mut until: Option<fn(&str) -> bool> = None;
    for line in text.lines() {
        if let Some(is_last) = until {
            until = (!is_last(line)).then_some(is_last);
        } else if let Some(is_last) = skipped_section(line) {
            until = Some(is_last);
        } else if !["memtrace: wrote ", "live: ", "Other memory "].iter().any(|start| line.starts_with(start)) {
            kept.push(without_times(line));
        }
    }
    kept
}

/// If this line begins a section to leave out, returns a predicate for the section's last line.
fn skipped_section(line: &str) -> Option<fn(&str) -> bool> {
    if line.starts_with("memtrace: ") && line.ends_with(" is out of memory") {
        return Some(|line| line.contains("(no scope)"));
    }
    if line.starts_with("Time in the driver") {
        return Some(str::is_empty);
    }
    None
}

fn without_times(line: &str) -> String {
    let (mut kept, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(is_figure) {
        let after = rest[at..].trim_start_matches(is_figure);
        kept.push_str(&rest[..at]);
        let after_time = after_unit(after);
        kept.push_str(if after_time.is_some() { "TIME" } else { &rest[at..rest.len() - after.len()] });
        rest = after_time.unwrap_or(after);
    }
    kept + rest
}

fn is_figure(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

/// The rest of a text that begins with a unit of time.
fn after_unit(text: &str) -> Option<&str> {
    let text = text.strip_prefix(' ').unwrap_or(text);
    let after = ["ns", "µs", "ms", "s"].iter().find_map(|unit| text.strip_prefix(unit))?;
    (!after.starts_with(|c: char| c.is_alphanumeric() || c == '_')).then_some(after)
}

/// Describes the first line in which two texts differ.
pub(super) fn difference(ours: &[String], alone: &[String]) -> Option<String> {
    let line = |lines: &[String], at| lines.get(at).cloned().unwrap_or_else(|| "nothing".to_owned());
    let at = (0..ours.len().max(alone.len())).find(|&at| ours.get(at) != alone.get(at))?;
    Some(format!("line {}:\n      {}\n      not, as alone:\n      {}", at + 1, line(ours, at), line(alone, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_are_replaced() {
        let line = "took 1.5 ms, 20ns, 3µs and 7 s; 12 steps of 4.0 MiB in 2 sections, 5.0 s_ and x9 ms";
        let timeless = "took TIME, TIME, TIME and TIME; 12 steps of 4.0 MiB in 2 sections, 5.0 s_ and xTIME";
        assert_eq!(without_times(line), timeless);
    }

    #[test]
    fn output_of_memtrace_is_left_out() {
        let text = "one\nmemtrace: wrote a\nlive: 5\nOther memory 3\nmemtrace: cuda:0 is out of memory\nsome\n\
                    4 (no scope)\ntwo\nTime in the driver: 1\n5 ms\n\nthree\nmemtrace: other";
        assert_eq!(timeless(text), ["one", "two", "three", "memtrace: other"]);
    }

    #[test]
    fn the_first_difference_is_shown() {
        let texts = [["a", "b"], ["a", "c"]].map(|lines| lines.map(str::to_owned));
        assert_eq!(difference(&texts[0], &texts[0]), None);
        assert_eq!(difference(&texts[0], &texts[1]).unwrap(), "line 2:\n      b\n      not, as alone:\n      c");
        assert!(difference(&texts[0], &texts[0][..1]).unwrap().ends_with("nothing"));
    }
}
