//! Learns `backward` rules (line → operator of candle's backward pass) from candle's source. This is for a checkout or
//! path dependency whose version is unknown.

use super::frame_place::FramePlace;
use crate::input::text_of;
use crate::snapshot::{Fact, Frame, Rules, Stacks};

/// Limit for a source file, in bytes: many times the size of candle's file with the backward pass.
const LONGEST_SOURCE: u64 = 4 << 20;

/// The source file of the backward pass in these frames, if its version is unknown.
fn unversioned_backward_pass<'a>(rules: &Rules, frames: &'a [Frame]) -> Option<&'a str> {
    let is_one = |frame: &&Frame| {
        let place = FramePlace::of(frame);
        place.is(rules, Fact::Pass) && place.version.is_empty() && frame.line.is_some()
    };
    let mut files = frames.iter().filter(is_one).filter_map(|frame| frame.file.as_deref());
    let file = files.next()?;
    // With two such files, a line number could belong to either.
    files.all(|other| other == file).then_some(file)
}

/// The `backward` rule that this source yields, for any version without a rule of its own.
fn backward_rule(source: &str) -> Option<String> {
    let arms = arms(source);
    let words: Vec<String> = arms.iter().map(|(line, operator)| format!("{line}:{operator}")).collect();
    (!words.is_empty()).then(|| format!("backward candle_core * {}", words.join(" ")))
}

/// The arms of the `match` in `Tensor::backward` that begin with `Op::`, with their lines.
fn arms(source: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = source.lines().collect();
    let Some(begin) = lines.iter().position(|line| line.contains("pub fn backward(&self)")) else { return Vec::new() };
    let body = lines.iter().enumerate().skip(begin).take_while(|(_, line)| !line.starts_with("    }"));
    let mut arms: Vec<(usize, String)> = Vec::new();
    for (at, line) in body {
        let pattern = line.trim_start();
        if pattern.starts_with("Op::") {
            arms.push((at + 1, operator(pattern)));
        } else if let (Some((_, known)), true) = (arms.last_mut(), pattern.starts_with("| Op::")) {
            *known = format!("{known}|{}", operator(pattern.trim_start_matches("| ")));
        }
    }
    arms
}

/// `add` for `Op::Binary(lhs, rhs, BinaryOp::Add)`, `conv2d` for `Op::Conv2D { … }`.
fn operator(pattern: &str) -> String {
    let name = |at: usize| {
        let rest = pattern.get(at..).unwrap_or_default();
        rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
    };
    let kinds = ["BinaryOp::", "UnaryOp::", "ReduceOp::"];
    let inner = kinds.iter().find_map(|kind| pattern.find(kind).map(|at| name(at + kind.len())));
    snake(inner.unwrap_or_else(|| name("Op::".len())))
}

/// `WhereCond` becomes `where_cond`, and `Conv1D` becomes `conv1d`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    let mut before = ' ';
    for c in name.chars() {
        if c.is_ascii_uppercase() && before.is_ascii_lowercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
        before = c;
    }
    snake
}

/// Adds the `backward` rule for a candle without a version, if its source can be read.
#[doc(hidden)]
pub fn learn_backward_pass(rules: &mut Rules, stacks: &Stacks) {
    let Some(file) = unversioned_backward_pass(rules, &stacks.frames) else { return };
    // The path comes from the recording, so there may be no such file here.
    let rule = text_of(file.as_ref(), LONGEST_SOURCE).ok().and_then(|source| backward_rule(&source));
    // If the table is full, it stays unchanged.
    let _ = rule.map(|rule| rules.add(&rule));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Rules;
    use crate::snapshot::testing::frame;

    /// Folders of candle-core in cargo's registry, with their versions.
    fn sources() -> Vec<(String, std::path::PathBuf)> {
        let home = std::env::var_os("CARGO_HOME").map(std::path::PathBuf::from);
        let home = home.or_else(|| Some(std::path::PathBuf::from(std::env::var_os("HOME")?).join(".cargo"))).unwrap();
        let registries = std::fs::read_dir(home.join("registry/src")).unwrap();
        let crates = registries.flat_map(|registry| std::fs::read_dir(registry.unwrap().path()).unwrap());
        let version =
            |path: &std::path::Path| Some(path.file_name()?.to_str()?.strip_prefix("candle-core-")?.to_owned());
        crates.filter_map(|entry| Some((version(&entry.as_ref().ok()?.path())?, entry.ok()?.path()))).collect()
    }

    /// Prints each missing rule as a line for the table.
    #[test]
    fn the_tables_lines_are_those_of_candles_sources() {
        let sources = sources();
        assert!(!sources.is_empty(), "the version that is built here is in the registry");
        for (version, folder) in sources {
            let source = std::fs::read_to_string(folder.join("src/backprop.rs")).unwrap();
            let line = backward_rule(&source).unwrap().replace('*', &version);
            assert!(include_str!("../snapshot/rules.txt").lines().any(|known| known == line), "{line}");
        }
    }

    #[test]
    fn a_candle_of_no_version_has_its_backward_operators() {
        let frame = |file: &str| frame("candle_core::tensor::Tensor::backward", file, 185);
        let [checkout, other] =
            ["/c/git/checkouts/candle-1/abc/candle-core/src/backprop.rs", "/c/candle/candle-core/src/backprop.rs"]
                .map(frame);
        let published = frame("/c/registry/src/index-1/candle-core-0.11.1/src/backprop.rs");
        let rules = &Rules::default();
        assert_eq!(unversioned_backward_pass(rules, &[published.clone(), checkout.clone()]), checkout.file.as_deref());
        assert_eq!(unversioned_backward_pass(rules, std::slice::from_ref(&published)), None);
        assert_eq!(unversioned_backward_pass(rules, &[checkout, other]), None, "whose line?");

        let source = "    pub fn backward(&self) -> Result<GradStore> {\n        match op {\n            \
            Op::Binary(lhs, rhs, BinaryOp::Add) => {\n            }\n            Op::Unary(_, UnaryOp::Floor)\n            \
            | Op::Unary(_, UnaryOp::Round) => x,\n            Op::Conv2D { arg } => {}\n    }\n            Op::Copy(arg) => {}\n";
        let line = backward_rule(source).unwrap();
        assert_eq!(line, "backward candle_core * 3:add 5:floor|round 7:conv2d");
        let mut rules = Rules::default();
        rules.add(&line).unwrap();
        assert_eq!(rules.backward("candle_core", "", 4), Some("add"));
        assert_eq!(rules.backward("candle_core", "0.11.1", 185), Some("add"), "the table goes before");
        assert_eq!(backward_rule("fn main() {}"), None);
    }
}
