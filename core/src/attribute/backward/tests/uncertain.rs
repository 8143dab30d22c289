//! Passes of which the log does not tell enough: nothing is guessed.

use super::*;
use crate::snapshot::Gap;

#[test]
fn a_pass_is_paired_only_if_the_log_has_all_of_it() {
    let mut story = told(|story| {
        forward(story).at(110).alloc("zeros", 8000).on(RIGHT_ZEROS).at(120).alloc("sum", 8000).on(RIGHT_SUM);
    });
    let mut with = |overwritten: usize, gap: Option<(u64, u64)>| {
        let mut data = with_order(story.overwritten(overwritten), &[(Result, 2000, 1), (Variable, 8000, 0)]);
        let gap = gap.map(|(from_ns, to_ns)| Gap { at: 0, records: 1, from_ns, to_ns });
        data.devices[0].gaps.extend(gap);
        pairs(&data, 3..=4)
    };
    assert_eq!([with(0, None), with(1, None), with(0, Some((30, 40)))], [[1, 1]; 3]);
    assert_eq!(with(2, None), [0, 0], "records of the pass may have been overwritten");
    assert_eq!(with(0, Some((112, 115))), [0, 0], "records of the pass are missing");
}

/// The operand of the view was also used directly. The view's step adds to that gradient and replaces it.
#[test]
fn of_two_gradients_that_are_freed_after_a_view_neither_is_said_to_be_the_views() {
    let story = told(|story| {
        forward(story).at(30).alloc("other", 2000).on(MATMUL).at(110);
        story.alloc("zeros 1", 8000).on(RIGHT_ZEROS).alloc("of view", 8000).on(RIGHT_SUM).free("zeros 1");
        story.alloc("zeros 2", 8000).on(RIGHT_ZEROS).alloc("direct", 8000).on(RIGHT_SUM).free("zeros 2");
        story.alloc("both", 8000).on(TURNED_SUM).free("direct").free("of view");
    });
    let nodes = [(Result, 2000, 3), (Result, 2000, 1), (View, 8000, 0), (Variable, 8000, 0)];
    assert_eq!(pairs(&with_order(&story, &nodes), 4..=8), [3, 3, 1, 1, 0]);
}
