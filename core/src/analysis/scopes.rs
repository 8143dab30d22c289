//! Scope table: the memory of each scope itself, and the memory of the device while the scope was open.

use std::collections::HashMap;

use crate::hashed::summed;
use crate::recording::DeviceView;
use crate::snapshot::ContextId;

/// Memory of a scope on one device, without blocks below the threshold.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScopeRow {
    /// Path of the scope: the names from the outermost scope inwards, joined by ` > `.
    pub path: String,
    /// Nesting depth, from 1.
    #[serde(skip)]
    pub depth: usize,
    /// The scope's own name.
    #[serde(skip)]
    pub name: String,
    /// Bytes of the peak in blocks that were allocated directly in the scope, not in nested scopes.
    #[serde(rename = "at_peak_bytes")]
    pub at_peak: u64,
    /// The most bytes live at once in blocks that were allocated in the scope or in nested scopes.
    #[serde(rename = "own_peak_bytes")]
    pub own_peak: u64,
    /// The most bytes live on the device while the scope was open. `None` if the scope was never entered while
    /// recording.
    #[serde(rename = "total_peak_bytes")]
    pub total_peak: Option<u64>,
    /// Number of times that the scope was entered.
    pub calls: u64,
    /// Number of allocations in the scope or in nested scopes.
    pub allocations: u64,
}

/// The scopes of a recording as a tree in the order of their first use, parents before children.
pub fn scopes(device: &DeviceView<'_>) -> Vec<ScopeRow> {
    let data = device.data();
    let at_peak = summed(device.peak_weights().map(|(block, weight)| (block.context, weight.bytes)));
    let mut rows: Vec<(Vec<ContextId>, ScopeRow)> = device
        .scopes
        .iter()
        .map(|stats| {
            let path = data.context_ids(stats.context);
            let row = ScopeRow {
                path: data.context_path(stats.context),
                depth: path.len(),
                name: data.context_names(stats.context).pop().unwrap_or_default().to_owned(),
                at_peak: at_peak.get(&stats.context).copied().unwrap_or(0),
                own_peak: stats.own_peak,
                total_peak: stats.total_peak,
                calls: stats.calls,
                allocations: stats.allocations,
            };
            (path, row)
        })
        .collect();
    // Sorting by the ids of the path puts children after their parents.
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Merges scopes of one parent whose names differ only in a number. The merged row says where the maximum was:
/// `step 0 … step 4, most in step 2`. Bytes at the peak, calls and allocations are summed; peaks are maxima.
pub(crate) fn scopes_by_pattern(rows: Vec<ScopeRow>) -> Vec<ScopeRow> {
    let mut tree = ScopeTree::default();
    rows.into_iter().for_each(|row| tree.add(row));
    tree.rows()
}

/// Scopes of one parent, as indices into [`ScopeTree::groups`].
#[derive(Default)]
struct Siblings {
    groups: Vec<usize>,
    by_pattern: HashMap<String, usize>,
    /// The group to which the last row was added. The next row, if it is deeper, is nested in this group.
    newest: Option<usize>,
}

/// Merged scopes. A capture may nest scopes to any depth, so this code does not recurse.
#[derive(Default)]
struct ScopeTree {
    outermost: Siblings,
    groups: Vec<Group>,
}

impl ScopeTree {
    fn add(&mut self, row: ScopeRow) {
        let (mut depth, mut around) = (1, None);
        // In a damaged capture, a scope may appear without its enclosing scopes.
        while let Some(newest) = self.siblings(around).newest.filter(|_| row.depth > depth) {
            (depth, around) = (depth + 1, Some(newest));
        }
        let next = self.groups.len();
        let siblings = self.siblings(around);
        let group = *siblings.by_pattern.entry(name_pattern(&row.name)).or_insert(next);
        siblings.newest = Some(group);
        if group == next {
            siblings.groups.push(group);
            self.groups.push(Group::of(row));
        } else {
            self.groups[group].add(row);
        }
    }

    fn siblings(&mut self, around: Option<usize>) -> &mut Siblings {
        match around {
            Some(group) => &mut self.groups[group].inside,
            None => &mut self.outermost,
        }
    }

    /// The rows, each followed by its nested scopes.
    fn rows(mut self) -> Vec<ScopeRow> {
        let mut rows = Vec::with_capacity(self.groups.len());
        let mut waiting: Vec<usize> = self.outermost.groups.into_iter().rev().collect();
        while let Some(group) = waiting.pop() {
            let group = std::mem::take(&mut self.groups[group]);
            waiting.extend(group.inside.groups.iter().rev());
            rows.push(group.finish());
        }
        rows
    }
}

#[derive(Default)]
struct Group {
    row: ScopeRow,
    last: String,
    worst: String,
    inside: Siblings,
}

impl Group {
    fn of(row: ScopeRow) -> Self {
        Self { last: row.name.clone(), worst: row.name.clone(), inside: Siblings::default(), row }
    }

    fn add(&mut self, more: ScopeRow) {
        let row = &mut self.row;
        if (more.total_peak, more.own_peak) > (row.total_peak, row.own_peak) {
            self.worst.clone_from(&more.name);
        }
        row.at_peak += more.at_peak;
        row.own_peak = row.own_peak.max(more.own_peak);
        row.total_peak = row.total_peak.max(more.total_peak);
        row.calls += more.calls;
        row.allocations += more.allocations;
        self.last = more.name;
    }

    fn finish(mut self) -> ScopeRow {
        if self.row.name != self.last {
            let merged = format!("{} … {}, most in {}", self.row.name, self.last, self.worst);
            if let Some(around) = self.row.path.strip_suffix(&self.row.name) {
                self.row.path = format!("{around}{merged}");
            }
            self.row.name = merged;
        }
        self.row
    }
}

/// The name with `#` for each number.
pub(crate) fn name_pattern(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    for c in name.chars() {
        match c.is_ascii_digit() {
            true if pattern.ends_with('#') => {}
            true => pattern.push('#'),
            false => pattern.push(c),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(depth: usize, name: &str, own_peak: u64) -> ScopeRow {
        let (name, total_peak) = (name.to_owned(), Some(own_peak));
        ScopeRow { depth, name, own_peak, total_peak, at_peak: 1, calls: 1, allocations: 1, ..ScopeRow::default() }
    }

    #[test]
    fn scopes_that_differ_in_a_number_are_one_row_that_names_the_worst() {
        let rows = vec![
            row(1, "load", 9),
            row(1, "step 0", 5),
            row(2, "forward", 4),
            row(1, "step 1", 8),
            row(2, "forward", 7),
            row(2, "eval", 1),
            row(1, "step 10", 6),
            row(1, "end", 1),
        ];
        let found = scopes_by_pattern(rows);
        let shown: Vec<_> = found.iter().map(|row| (row.depth, &*row.name, row.own_peak, row.calls)).collect();
        let steps = "step 0 … step 10, most in step 1";
        let wanted = [(1, "load", 9, 1), (1, steps, 8, 3), (2, "forward", 7, 2), (2, "eval", 1, 1), (1, "end", 1, 1)];
        assert_eq!(shown, wanted);
        assert_eq!(found.iter().map(|row| row.at_peak).sum::<u64>(), 8, "nothing is lost");
    }
    #[test]
    fn a_scope_without_the_one_around_it_has_a_row() {
        let found = scopes_by_pattern(vec![row(3, "inner", 2), row(2, "middle", 3), row(1, "outer", 4)]);
        assert_eq!(
            found.iter().map(|row| (row.depth, &*row.name)).collect::<Vec<_>>(),
            [(3, "inner"), (2, "middle"), (1, "outer")]
        );
    }

    /// The same by levels: the groups of one depth, and within each the groups of the next depth.
    fn by_definition(rows: &[ScopeRow], depth: usize) -> Vec<ScopeRow> {
        let mut groups: Vec<(Group, Vec<ScopeRow>)> = Vec::new();
        let mut now = 0;
        for row in rows {
            if row.depth > depth && !groups.is_empty() {
                groups[now].1.push(row.clone());
                continue;
            }
            let same = |(group, _): &(Group, _)| name_pattern(&group.worst) == name_pattern(&row.name);
            now = groups.iter().position(same).unwrap_or(groups.len());
            match groups.get_mut(now) {
                Some((group, _)) => group.add(row.clone()),
                None => groups.push((Group::of(row.clone()), Vec::new())),
            }
        }
        groups
            .into_iter()
            .flat_map(|(group, inside)| [vec![group.finish()], by_definition(&inside, depth + 1)].concat())
            .collect()
    }

    proptest! {
        #[test]
        fn rows_are_merged_as_level_by_level(
            rows in prop::collection::vec((1..5usize, prop::sample::select(vec!["a", "b 1", "b 2", "c"]), 0..9u64), 0..40),
        ) {
            let rows: Vec<ScopeRow> = rows.into_iter().map(|(depth, name, peak)| row(depth, name, peak)).collect();
            prop_assert_eq!(scopes_by_pattern(rows.clone()), by_definition(&rows, 1));
        }
    }
}
