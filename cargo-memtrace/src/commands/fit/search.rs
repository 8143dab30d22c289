//! Finds the largest value with which a program fits, by trying.

use super::vary::VaryValues;
use crate::failure::CommandFailure;

/// Tries each value of a list. In a range, doubles the value from the lower end, then halves the gap between the last
/// value that fits and the first that does not, until the gap is a 64th of the value.
pub(super) fn largest(
    values: &VaryValues,
    mut fits: impl FnMut(u64) -> Result<bool, CommandFailure>,
) -> Result<Option<u64>, CommandFailure> {
    let (from, to, step) = match values {
        VaryValues::List(values) => {
            let mut largest = None;
            for value in values {
                if fits(*value)? {
                    largest = largest.max(Some(*value));
                }
            }
            return Ok(largest);
        }
        VaryValues::Range { from, to, step } => (*from, *to, *step),
    };
    let (mut good, mut bad, mut value) = (None, None, from);
    while bad.is_none() {
        *(if fits(value)? { &mut good } else { &mut bad }) = Some(value);
        if value == to {
            break;
        }
        value = on_step(value.saturating_mul(2), step).min(to);
    }
    let (Some(mut good), Some(mut bad)) = (good, bad) else { return Ok(good) };
    loop {
        let middle = on_step(good + (bad - good) / 2, step);
        if middle <= good || bad - good <= good / 64 {
            return Ok(Some(good));
        }
        *(if fits(middle)? { &mut good } else { &mut bad }) = middle;
    }
}

fn on_step(value: u64, step: u64) -> u64 {
    value - value % step.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &VaryValues, limit: u64) -> (Option<u64>, usize) {
        let mut tried = 0;
        let fits = |value| {
            tried += 1;
            Ok(value <= limit)
        };
        (largest(values, fits).unwrap(), tried)
    }

    #[test]
    fn the_largest_of_a_list_counts_in_any_order() {
        let list = VaryValues::List(vec![1, 8, 2, 4]);
        assert_eq!([0, 1, 5, 99].map(|limit| found(&list, limit).0), [None, Some(1), Some(4), Some(8)]);
    }

    /// The need falls again here. Each value of a list is tried, so the largest one that fits is found.
    #[test]
    fn a_need_that_does_not_rise_with_the_value_is_found_in_a_list() {
        let list = VaryValues::List(vec![1, 2, 3, 4]);
        assert_eq!(largest(&list, |value| Ok(value != 3)).unwrap(), Some(4));
    }

    #[test]
    fn a_range_is_searched_to_a_64th_within_its_ends_and_on_its_steps() {
        for limit in (0..5000).step_by(7) {
            let (value, tried) = found(&VaryValues::Range { from: 16, to: 4096, step: 1 }, limit);
            let expected = limit.min(4096);
            match value {
                None => assert!(limit < 16),
                Some(value) => assert!(value <= expected && expected - value <= value / 64, "{limit} {value}"),
            }
            assert!(tried <= 16, "{limit}: {tried}");
            let (value, _) = found(&VaryValues::Range { from: 128, to: 4096, step: 128 }, limit);
            assert!(value.is_none_or(|value| value % 128 == 0 && value <= limit), "{limit} {value:?}");
            assert_eq!(value.is_none(), limit < 128);
        }
    }
}
