//! What each line of the forward pass, or each layer, costs: its share of a moment, by what the memory is for.

use std::collections::HashMap;

use super::labels::Labels;
use super::live::LiveSet;
use super::rows::{Key, Row};
use crate::snapshot::{Block, Category, words};

words! {
    /// What memory of a line or a layer is for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Part {
        /// Trained weights.
        Parameters = "Parameters",
        /// Gradients of parameters.
        Gradients = "Gradients",
        /// What an optimizer keeps between steps.
        OptimizerState = "Optimizer",
        /// Allocated by the forward pass for the backward pass.
        Activations = "Activations",
        /// Allocated by the backward pass, known gradients of parameters not included.
        BackwardPass = "Backward",
        /// Anything else.
        Other = "Other",
    }
}

/// Bytes by [`Part`].
pub type Parts = [u64; Part::ALL.len()];

impl LiveSet<'_> {
    /// The rows [by a key](Self::by) with their parts; none where only the sum is known.
    pub fn parts(&self, key: Key) -> Vec<(Row, Option<Parts>)> {
        let mut labels = Labels::by(self.device, key, self.time_ns);
        let mut sums: Vec<Parts> = Vec::new();
        for (block, weight) in self.weights() {
            let number = labels.number(block);
            sums.resize_with(sums.len().max(number + 1), Parts::default);
            if let Some(sum) = sums.get_mut(number).and_then(|sum| sum.get_mut(self.part(block) as usize)) {
                *sum += weight.bytes;
            }
        }
        let sums: HashMap<&str, Parts> = labels.names().zip(sums).collect();
        let rows = self.by(key).rows.clone();
        let with_parts = |row: Row| {
            let parts = sums.get(&*row.label).copied().filter(|parts| parts.iter().sum::<u64>() == row.bytes);
            (row, parts)
        };
        rows.into_iter().map(with_parts).collect()
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
    use crate::snapshot::testing::{a_sample, two_lines_and_a_temporary};

    #[test]
    fn the_parts_of_each_row_add_up_to_it() {
        for data in [two_lines_and_a_temporary(), a_sample()] {
            let device = DeviceView::of(&data, &data.devices[0]);
            for key in Key::ALL {
                let (live, rows) = (device.at_peak(), device.at_peak().parts(key));
                assert_eq!(
                    rows.iter().map(|(row, _)| row).collect::<Vec<_>>(),
                    live.by(key).rows.iter().collect::<Vec<_>>()
                );
                for (row, parts) in rows {
                    assert_eq!(parts.map(|parts| parts.iter().sum()), row.count.map(|_| row.bytes), "{key}: {row:?}");
                }
            }
        }
    }
}
