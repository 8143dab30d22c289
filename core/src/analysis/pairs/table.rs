//! The table of operators that do the same work in PyTorch and in candle.

use std::collections::HashMap;
use std::sync::LazyLock;

static KNOWN: LazyLock<PairTable> = LazyLock::new(|| PairTable::of(include_str!("operators.txt")));

/// The number of a line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PairNumber(u32);

#[derive(Default)]
struct PairTable {
    lines: Vec<PairLine>,
    torch: HashMap<&'static str, Vec<PairNumber>>,
    candle: HashMap<&'static str, Vec<PairNumber>>,
}

struct PairLine {
    name: &'static str,
    /// Whether the line's operators make tensors that are not computed from other tensors.
    is_data: bool,
}

impl PairTable {
    fn of(text: &'static str) -> Self {
        let mut table = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            // A test parses every line.
            let Some((kind, rest)) = line.split_once(' ') else { continue };
            let Some((name, sides)) = rest.split_once(": ") else { continue };
            let Some((torch, candle)) = sides.split_once(" = ") else { continue };
            let number = PairNumber(table.lines.len() as u32);
            table.lines.push(PairLine { name, is_data: kind == "data" });
            torch.split(' ').for_each(|name| table.torch.entry(name).or_default().push(number));
            candle.split(' ').for_each(|name| table.candle.entry(name).or_default().push(number));
        }
        table
    }
}

impl PairNumber {
    /// The lines that contain this operator of PyTorch, in order.
    pub(super) fn of_torch(operator: &str) -> &'static [Self] {
        KNOWN.torch.get(operator.trim_matches('_')).map_or(&[], Vec::as_slice)
    }

    /// The lines that contain this operator of candle, in order.
    pub(super) fn of_candle(operator: &str) -> &'static [Self] {
        KNOWN.candle.get(operator).map_or(&[], Vec::as_slice)
    }

    pub(super) fn name(self) -> &'static str {
        KNOWN.lines.get(self.0 as usize).map_or("", |line| line.name)
    }

    pub(super) fn is_data(self) -> bool {
        KNOWN.lines.get(self.0 as usize).is_some_and(|line| line.is_data)
    }
}

/// The operator of a node of PyTorch's backward pass: `native_layer_norm` for `NativeLayerNormBackward0`.
pub(super) fn operator_of_node(node: &str) -> String {
    let end = node.rfind("Backward").unwrap_or(node.len());
    let letters: Vec<char> = node.get(..end).unwrap_or_default().chars().collect();
    let mut snake = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let after_lower = at > 0 && letters.get(at - 1).is_some_and(char::is_ascii_lowercase);
        let before_lower = at > 0 && letters.get(at + 1).is_some_and(char::is_ascii_lowercase);
        if letter.is_ascii_uppercase() && (after_lower || before_lower) {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::snapshot::Rules;

    #[test]
    fn nodes_of_the_backward_pass_are_named_after_operators() {
        for (node, operator) in [
            ("BmmBackward0", "bmm"),
            ("NativeLayerNormBackward0", "native_layer_norm"),
            ("ToCopyBackward0", "to_copy"),
            ("TBackward0", "t"),
            ("MaxPool2DWithIndicesBackward0", "max_pool2d_with_indices"),
            ("AccumulateGrad", "accumulate_grad"),
        ] {
            assert_eq!(operator_of_node(node), operator);
        }
    }

    #[test]
    fn every_line_of_the_table_is_read_and_no_name_is_twice_on_a_side() {
        let text = include_str!("operators.txt");
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        assert_eq!(KNOWN.lines.len(), lines.len());
        for line in lines {
            assert!(line.starts_with("pair ") || line.starts_with("data "), "{line}");
            let (_, sides) = line.split_once(": ").unwrap();
            for side in sides.split(" = ") {
                let names: Vec<&str> = side.split(' ').collect();
                assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{line}");
            }
        }
        let names: HashSet<&str> = KNOWN.lines.iter().map(|line| line.name).collect();
        assert_eq!(names.len(), KNOWN.lines.len());
    }

    /// Source files of the newest candle in cargo's registry, with paths relative to `src`.
    fn sources(package: &str) -> Vec<(String, String)> {
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cargo"));
        let registries = fs::read_dir(home.join("registry/src")).unwrap();
        let mut folders = registries.map(|registry| registry.unwrap().path().join(format!("{package}-0.11.1/src")));
        let folder = folders.find(|folder| folder.exists()).expect("the candle that is built here");
        let files = [folder.clone(), folder.join("quantized")]
            .into_iter()
            .flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
        let files =
            files.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|it| it == "rs"));
        let named = |path: PathBuf| {
            (path.strip_prefix(&folder).unwrap().display().to_string(), fs::read_to_string(path).unwrap())
        };
        files.map(named).collect()
    }

    #[test]
    fn candles_names_are_functions_that_memtrace_reports_as_operators() {
        let rules = Rules::default();
        let sources = [("candle_core", sources("candle-core")), ("candle_nn", sources("candle-nn"))];
        let is_operator = |name: &str| {
            let made =
                [format!("fn {name}("), format!("fn {name}<"), format!("op!({name},"), format!("scalar!({name},")];
            sources.iter().any(|(package, files)| {
                let of_rules = |file: &str| rules.is_operator(package, file, name);
                files.iter().any(|(file, text)| of_rules(file) && made.iter().any(|it| text.contains(it.as_str())))
            })
        };
        let arms: HashSet<&str> = include_str!("../../snapshot/rules.txt")
            .lines()
            .filter(|line| line.starts_with("backward candle_core 0.11.1 "))
            .flat_map(|line| line.split([' ', ':', '|']))
            .collect();
        for name in KNOWN.candle.keys().filter(|name| **name != "QMatMul") {
            assert!(is_operator(name) || arms.contains(name), "candle has no operator {name}");
        }
        // Every operation that the backward pass handles has a pair, except those that PyTorch lacks.
        let without =
            ["custom_op1", "custom_op2", "custom_op3", "backward", "candle_core", "0.11.1", "arg_min", "arg_max"];
        for arm in arms.iter().filter(|arm| !arm.chars().all(|c| c.is_ascii_digit()) && !without.contains(arm)) {
            assert!(!PairNumber::of_candle(arm).is_empty(), "no line has {arm}");
        }
    }
}
