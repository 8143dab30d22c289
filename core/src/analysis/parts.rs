//! The cost of each line of the forward pass, or of each layer: its share of the memory at a moment, by purpose.

use std::collections::HashMap;

use super::breakdown::at;
use super::labels::Labels;
use super::live::LiveSet;
use super::rows::{Key, Row};
use crate::snapshot::{Block, Category, words};

words! {
    /// The purpose of a line's or a layer's memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Part {
        /// Trained weights.
        Parameters = "Parameters",
        /// Gradients of parameters.
        Gradients = "Gradients",
        /// State that an optimizer keeps between steps.
        OptimizerState = "Optimizer",
        /// Allocated by the forward pass for the backward pass.
        Activations = "Activations",
        /// Allocated by the backward pass, except known gradients of parameters.
        BackwardPass = "Backward",
        /// Anything else.
        Other = "Other",
    }
}

/// Bytes by [`Part`].
pub type Parts = [u64; Part::ALL.len()];

/// The cost of a line of the forward pass or of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostRow {
    /// Its share of the memory at the moment.
    pub row: Row,
    /// The share by purpose; `None` if only the sum is known.
    pub parts: Option<Parts>,
    /// The size of its largest temporary block in the whole log; 0 if there is none.
    pub largest_temporary: u64,
}

impl LiveSet<'_> {
    /// The rows [by a key](Self::by) with their costs.
    pub fn costs(&self, key: Key) -> Vec<CostRow> {
        let mut labels = Labels::by(self.device, key, self.time_ns);
        let mut sums: Vec<Parts> = Vec::new();
        for (block, weight) in self.weights() {
            let number = labels.number(block);
            at(&mut sums, number)[self.part(block) as usize] += weight.bytes;
        }
        let temporaries = self.largest_temporaries(&mut labels);
        let sums: HashMap<&str, (Parts, u64)> = labels.names().zip(sums.into_iter().zip(temporaries)).collect();
        let cost = |row: &Row| {
            let of_row = sums.get(&*row.label).copied();
            let parts = of_row.map(|(parts, _)| parts).filter(|parts| parts.iter().sum::<u64>() == row.bytes);
            CostRow { row: row.clone(), parts, largest_temporary: of_row.map_or(0, |(_, temporary)| temporary) }
        };
        self.by(key).rows.iter().map(cost).collect()
    }

    /// For each label, by its number, the size of the largest temporary block.
    fn largest_temporaries(&self, labels: &mut Labels<'_>) -> Vec<u64> {
        let is_temporary = |category| matches!(category, Category::Temporary | Category::Workspace);
        let mut largest: Vec<u64> = vec![0; labels.names().count()];
        for life in self.device.lifetimes().iter() {
            if is_temporary(self.device.categories().get(Some(life.seq))) {
                let number = labels.number(&life.block);
                let largest = at(&mut largest, number);
                *largest = life.block.size.max(*largest);
            }
        }
        largest
    }

    fn part(&self, block: &Block) -> Part {
        match self.device.categories().get(block.seq) {
            Category::Parameter => Part::Parameters,
            Category::Gradient => Part::Gradients,
            Category::OptimizerState => Part::OptimizerState,
            Category::AutogradDetail => Part::BackwardPass,
            _ if self.device.pairings().get(block.seq).is_some() => Part::BackwardPass,
            Category::Activation => Part::Activations,
            _ => Part::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::DeviceView;
    use crate::snapshot::testing::{LINE_7, LINE_9, Story, a_sample, two_lines_and_a_temporary};

    #[test]
    fn the_parts_of_each_row_add_up_to_it() {
        for data in [two_lines_and_a_temporary(), a_sample()] {
            let device = DeviceView::of(&data, &data.devices[0]);
            for key in Key::ALL {
                let (live, rows) = (device.at_peak(), device.at_peak().costs(key));
                assert_eq!(
                    rows.iter().map(|cost| &cost.row).collect::<Vec<_>>(),
                    live.by(key).rows.iter().collect::<Vec<_>>()
                );
                for CostRow { row, parts, .. } in rows {
                    assert_eq!(parts.map(|parts| parts.iter().sum()), row.count.map(|_| row.bytes), "{key}: {row:?}");
                }
            }
        }
    }

    #[test]
    fn the_largest_temporary_is_that_of_the_whole_log() {
        let mut story = Story::cpu();
        story.alloc("kept", 100).on(LINE_7).named("w", Category::Parameter);
        story.alloc("other", 100).on(LINE_9).named("v", Category::Parameter);
        for (at, size) in [30, 50, 40].into_iter().enumerate() {
            story.alloc(at, size).on(LINE_7).named("t", Category::Temporary).free(at);
        }
        story.alloc("more", 60).on(LINE_7).named("u", Category::Parameter);
        let data = story.build();
        let device = DeviceView::of(&data, &data.devices[0]);
        let costs = device.at_peak().costs(Key::ModelLine);
        let largest = |cost: &CostRow| (cost.row.bytes, cost.largest_temporary);
        assert_eq!(costs.iter().map(largest).collect::<Vec<_>>(), [(160, 50), (100, 0)]);
    }
}
