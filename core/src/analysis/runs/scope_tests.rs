use super::*;
use crate::recording::DeviceView;
use crate::snapshot::testing::{LINE_7, Story, WORKER};

/// A program that calls `run` in each run of its scope `step`.
fn program(runs: u64, run: impl Fn(&mut Story, u64)) -> Story {
    let mut story = Story::cpu();
    for number in 0..runs {
        story.at(1_000 * (number + 1)).enter("step");
        run(&mut story, number);
        story.at(1_000 * (number + 1) + 500).leave("step");
    }
    story
}

fn verdict(story: &Story) -> LeakVerdict {
    let data = story.build();
    left_by_scopes(&DeviceView::of(&data, &data.devices[0]))
}

#[track_caller]
fn is_undecided(story: &Story, why: &str) {
    match verdict(story) {
        LeakVerdict::Undecided(reason) => assert!(reason.contains(why), "{reason}"),
        other => panic!("{why}: {other:?}"),
    }
}

fn leaves(story: &mut Story, number: u64) {
    story.alloc(format!("left {number}"), 2000).on(LINE_7);
}

#[test]
fn what_each_run_leaves_is_a_leak_also_if_all_is_freed_at_the_end() {
    let mut story = program(40, leaves);
    let leak = ScopeLeak {
        scope: "step".to_owned(),
        runs: 38,
        bytes: 76_000,
        line: "src/model.rs:7 (Net::forward)".to_owned(),
    };
    assert_eq!(verdict(&story), LeakVerdict::Leaks(leak.clone()));
    story.at(50_000);
    (0..40).for_each(|number| _ = story.free(format!("left {number}")));
    assert_eq!(verdict(&story), LeakVerdict::Leaks(leak));
}

#[test]
fn caches_that_fill_up_and_what_the_next_run_replaces_are_no_leak() {
    let clean: [fn(&mut Story, u64); 3] = [
        |story, number| _ = story.alloc(format!("temporary {number}"), 9000).free(format!("temporary {number}")),
        |story, number| {
            if number < 4 {
                story.alloc(format!("cached {number}"), 2000).on(LINE_7);
            }
        },
        |story, number| {
            story.alloc(format!("newest {number}"), 2000 + number * 37 % 11).on(LINE_7);
            if let Some(before) = number.checked_sub(2) {
                story.free(format!("newest {before}"));
            }
        },
    ];
    for run in clean {
        assert_eq!(verdict(&program(40, run)), LeakVerdict::Nothing(vec!["step".to_owned()]));
    }
}

#[test]
fn what_a_recording_does_not_tell_is_undecided() {
    is_undecided(&Story::cpu(), "no scope was open");
    is_undecided(&program(4, leaves), "ended 4 times");
    is_undecided(&program(8, leaves), "ended only 8 times");
    is_undecided(program(40, leaves).overwritten(3), "lacks records");
    let rises_late = |story: &mut Story, number| {
        if number == 9 || number == 12 {
            leaves(story, number);
        }
    };
    is_undecided(&program(16, rises_late), "rose in the second half");
    assert_eq!(verdict(&program(60, rises_late)), LeakVerdict::Nothing(vec!["step".to_owned()]));
}

#[test]
fn what_a_scope_around_frees_and_what_is_loaded_once_is_no_certain_leak() {
    let mut inner = Story::cpu();
    inner.at(1).enter("forward");
    for number in 0..24 {
        inner.at(1_000 * (number + 1)).enter("forward > block");
        leaves(&mut inner, number);
        inner.leave("forward > block");
    }
    inner.at(90_000);
    (0..24).for_each(|number| _ = inner.free(format!("left {number}")));
    is_undecided(inner.leave("forward"), "the scope around it freed");
    let mut loaded = program(24, leaves);
    for number in 0..100 {
        loaded.at(100_000 + number).alloc(format!("later {number}"), 5000).free(format!("later {number}"));
    }
    is_undecided(&loaded, "went on without it");
}

#[test]
fn a_scope_that_repeats_stands_for_the_scopes_within_it() {
    let story = program(20, |story, number| {
        for part in 0..20 {
            let layer = "step > layer";
            story.enter(layer).alloc(format!("output {number} {part}"), 3000).on(LINE_7).leave(layer);
        }
        (0..20).for_each(|part| _ = story.free(format!("output {number} {part}")));
    });
    assert_eq!(verdict(&story), LeakVerdict::Nothing(vec!["step".to_owned()]));
}

#[test]
fn other_threads_leak_if_they_keep_step_and_are_undecided_otherwise() {
    let of_other = |size: fn(u64) -> u64| {
        program(40, move |story, number| {
            story.thread(2).alloc(format!("kept {number}"), size(number)).on(WORKER).thread(1);
        })
    };
    assert!(matches!(verdict(&of_other(|_| 4000)), LeakVerdict::Leaks(ScopeLeak { bytes: 152_000, .. })));
    is_undecided(&of_other(|number| 4000 + number * 8), "other threads hold more memory");
    let once = program(40, |story, number| {
        if number < 2 {
            story.thread(2).alloc(format!("buffer {number}"), 1 << 20).on(WORKER).thread(1);
        }
    });
    assert_eq!(verdict(&once), LeakVerdict::Nothing(vec!["step".to_owned()]));
}

#[test]
fn of_numbered_scopes_all_are_one_and_of_nested_ones_the_outermost_that_ran_often_is_judged() {
    let mut story = Story::cpu();
    for epoch in 0..5 {
        story.at(100_000 * (epoch + 1)).enter("epoch");
        for step in 0..20 {
            let (time, path) = (100_000 * (epoch + 1) + 1_000 * step, format!("epoch > step {step}"));
            story.at(time).enter(&path);
            leaves(&mut story, 100 * epoch + step);
            story.at(time + 500).leave(&path);
        }
        story.at(100_000 * (epoch + 1) + 90_000).leave("epoch");
    }
    let LeakVerdict::Leaks(leak) = verdict(&story) else { panic!("{:?}", verdict(&story)) };
    assert_eq!((&*leak.scope, leak.runs, leak.bytes), ("epoch > step #", 98, 196_000));
}
