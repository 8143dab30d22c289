//! Scope table: what each scope held itself, and what the device held while the scope was open.

use std::collections::HashMap;

use crate::snapshot::{ContextId, DeviceSnapshot, SnapshotData};

/// A scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeRow {
    /// Its path: names from the outermost scope inwards, joined by ` > `.
    pub path: String,
    /// Nesting depth, from 1.
    pub depth: usize,
    /// The scope's own name.
    pub name: String,
    /// Bytes of the peak's blocks allocated directly in it, not in nested scopes; these add up to the total.
    pub at_peak: u64,
    /// Largest number of bytes live at once among blocks allocated in it or in nested scopes.
    pub own_peak: u64,
    /// Largest total of the device while it was open.
    pub total_peak: Option<u64>,
    /// How often it was entered.
    pub calls: u64,
    /// Allocations in it or in nested scopes.
    pub allocations: u64,
}

/// The scopes of a recording as a tree in the order of their first use, parents before children.
pub fn scopes(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<ScopeRow> {
    let mut at_peak: HashMap<ContextId, u64> = HashMap::new();
    for (block, weight) in device.peak_weights() {
        *at_peak.entry(block.context).or_default() += weight.bytes;
    }
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
    folded(rows, 1)
}

/// Merges the scopes of a depth, each followed by its nested scopes.
fn folded(rows: Vec<ScopeRow>, depth: usize) -> Vec<ScopeRow> {
    let mut groups: Vec<Group> = Vec::new();
    let (mut numbers, mut number) = (HashMap::new(), 0);
    for row in rows {
        // In a damaged capture a scope may stand there without the scopes around it.
        if let Some(group) = groups.get_mut(number).filter(|_| row.depth > depth) {
            group.inside.push(row);
            continue;
        }
        number = *numbers.entry(name_pattern(&row.name)).or_insert(groups.len());
        match groups.get_mut(number) {
            Some(group) => group.add(row),
            None => groups.push(Group::of(row)),
        }
    }
    let of_group = |group: Group| {
        let (row, inside) = group.finish();
        std::iter::once(row).chain(folded(inside, depth + 1))
    };
    groups.into_iter().flat_map(of_group).collect()
}

struct Group {
    row: ScopeRow,
    last: String,
    worst: String,
    inside: Vec<ScopeRow>,
}

impl Group {
    fn of(row: ScopeRow) -> Self {
        Self { last: row.name.clone(), worst: row.name.clone(), inside: Vec::new(), row }
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

    fn finish(mut self) -> (ScopeRow, Vec<ScopeRow>) {
        if self.row.name != self.last {
            self.row.name = format!("{} … {}, most in {}", self.row.name, self.last, self.worst);
        }
        (self.row, self.inside)
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
}
