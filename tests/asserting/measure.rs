//! Results of `measure` and `assert_peak!` on the calling thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::support::{MIB, Raw, alone, cpu, live, record_large};
use memtrace::snapshot::StackId;
use memtrace::{Measured, StackContext, assert_peak, measure, try_measure};

/// peak, leaked, net, allocated, allocations, frees
fn numbers(measured: &Measured) -> (u64, u64, i64, u64, u64, u64) {
    let m = measured;
    (m.peak, m.leaked, m.net, m.allocated, m.allocations, m.frees)
}

/// Holds at most 1100 bytes, keeps 700.
fn known() -> Raw {
    let first = Raw::new(400);
    let kept = Raw::new(700);
    drop(first);
    drop(Raw::new(100));
    kept
}

const KNOWN: (u64, u64, i64, u64, u64, u64) = (1100, 700, 700, 1200, 3, 2);

#[test]
fn a_measurement_counts_every_block_of_its_code() {
    let measured = measure(known);
    assert_eq!(numbers(&measured), KNOWN);
    assert_eq!(numbers(&measure(|| ())), (0, 0, 0, 0, 0, 0));
    let moved = measure(|| {
        let mut block = Raw::new(100);
        block.resize(5000);
        block.resize(10);
        drop(block);
    });
    assert_eq!(numbers(&moved), (5000, 0, 0, 5110, 3, 3));
}

#[test]
fn a_block_of_a_measurement_can_be_named_without_a_recording() {
    let _alone = alone();
    let unmeasured = vec![0u8; 1000];
    let measured = measure(|| {
        let block = vec![0u8; 1000];
        [&block, &unmeasured].map(|block| memtrace::name(block.as_ptr(), "weights"))
    });
    assert_eq!(measured.value, [true, false]);
}

#[test]
fn nested_measurements_each_count_their_own_code() {
    let outer = measure(|| {
        let before = Raw::new(1000);
        let inner = measure(known);
        drop(before);
        (inner, Raw::new(50))
    });
    assert_eq!(numbers(&outer.value.0), KNOWN);
    assert_eq!(numbers(&outer), (2100, 750, 750, 2250, 5, 3));
}

#[test]
fn freeing_an_older_block_makes_the_change_negative_and_leaves_the_peak() {
    let old = Raw::new(3000);
    let measured = measure(|| {
        drop(old);
        Raw::new(1000)
    });
    assert_eq!(numbers(&measured), (1000, 1000, -2000, 1000, 1, 0));
    let mut old = Raw::new(3000);
    let grown = measure(|| old.resize(4000));
    assert_eq!(numbers(&grown), (4000, 4000, 1000, 4000, 1, 0));
}

#[test]
fn a_block_of_the_outer_measurement_is_older_than_the_inner_one() {
    let outer = measure(|| {
        let block = Raw::new(900);
        let inner = measure(|| drop(block));
        (inner.leaked, inner.net, inner.frees)
    });
    assert_eq!(outer.value, (0, -900, 0));
    assert_eq!((outer.peak, outer.leaked, outer.net), (900, 0, 0));
}

#[test]
fn other_threads_are_not_counted() {
    let given = Raw::new(77);
    let worker = std::thread::spawn(|| {
        std::thread::park();
        drop(Raw::new(MIB));
    });
    let measured = measure(|| {
        let mine = Raw::new(10);
        worker.thread().unpark();
        let _ = worker.join();
        (mine, given)
    });
    assert_eq!((measured.peak, measured.leaked), (10, 10));
}

fn leaves_early(give_up: bool) -> Result<usize, std::fmt::Error> {
    let fails = || if give_up { Err(std::fmt::Error) } else { Ok(5) };
    let length = assert_peak!("1 KiB", {
        let block = Raw::new(512);
        fails()? + block.size() as usize
    });
    Ok(length)
}

#[test]
fn a_question_mark_inside_an_assertion_leaves_the_function_and_closes_the_measurement() {
    assert_eq!(leaves_early(false), Ok(517));
    leaves_early(true).unwrap_err();
    assert_eq!(numbers(&measure(known)), KNOWN);
    let outer = measure(|| leaves_early(true).is_err());
    assert!(outer.value);
    assert_eq!((outer.peak, outer.leaked), (512, 0));
}

#[test]
fn a_panic_inside_ends_the_measurement_and_the_next_one_is_right() {
    for _ in 0..3 {
        let outcome: Result<(), _> = catch_unwind(|| {
            let inside = || {
                let _block = Raw::new(5000);
                resume_unwind(Box::new("on purpose"))
            };
            measure(|| measure(inside)).value.value
        });
        assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"on purpose"));
        assert_eq!(numbers(&measure(known)), KNOWN);
    }
}

/// Whether a measurement is active on this thread: its blocks have stacks even in a recording without stacks.
fn is_measuring() -> bool {
    let _alone = alone();
    let session = memtrace::builder().min_size(MIB).context(StackContext::None).start().unwrap();
    let _block = Raw::new(MIB);
    cpu(&session.snapshot()).live[0].stack != StackId::NONE
}

#[test]
fn a_measurement_that_is_left_early_is_closed() {
    assert!(measure(is_measuring).value && !is_measuring());
    leaves_early(true).unwrap_err();
    assert!(!is_measuring(), "left by a question mark");
    catch_unwind(|| drop(measure(|| resume_unwind(Box::new(()))))).unwrap_err();
    assert!(!is_measuring(), "left by a panic");
}

#[test]
fn a_measurement_continues_after_a_panic_that_is_caught_inside() {
    let measured = measure(|| {
        let kept = Raw::new(100);
        let outcome = catch_unwind(AssertUnwindSafe(|| measure(|| resume_unwind(Box::new(()))).value));
        drop::<Result<(), _>>(outcome);
        drop(Raw::new(1000));
        kept
    });
    assert_eq!((measured.leaked, measured.net), (100, 100));
    assert!((1100..2000).contains(&measured.peak), "{}", measured.peak);
}

#[test]
fn a_measurement_and_a_session_around_it_are_both_right() {
    let _alone = alone();
    let session = record_large();
    let before = Raw::new(MIB);
    let measured = measure(|| {
        let first = Raw::new(2 * MIB);
        let second = Raw::new(3 * MIB);
        drop((first, before));
        second
    });
    assert_eq!(numbers(&measured), (5 << 20, 3 << 20, 2 << 20, 5 << 20, 2, 1));
    let snapshot = session.snapshot();
    assert_eq!(live(&snapshot), [measured.value.key()]);
    let peak: Vec<u64> = cpu(&snapshot).peak.blocks.iter().map(|block| block.size >> 20).collect();
    assert_eq!(peak, [1, 2, 3]);
}

#[test]
fn a_session_inside_a_measurement_is_not_part_of_it() {
    let _alone = alone();
    let measured = measure(|| {
        let first = Raw::new(MIB);
        let session = record_large();
        let second = Raw::new(2 * MIB);
        let key = second.key();
        assert_eq!(session.snapshot().device(memtrace::Device::Cpu).map(|cpu| cpu.live.len()), Some(1));
        drop((first, session));
        (second, key)
    });
    assert_eq!(numbers(&measured), (3 << 20, 2 << 20, 2 << 20, 3 << 20, 2, 1));
}

/// The first use of a part of memtrace or of `std` in a process must not count, either.
#[test]
fn each_measurement_is_right_as_the_first_of_a_process() {
    let this = "measure::each_measurement_is_right_as_the_first_of_a_process";
    let program = || std::process::Command::new(std::env::current_exe().unwrap());
    let list = program().args(["measure::", "--list", "--format=terse"]).output().unwrap().stdout;
    let list = String::from_utf8(list).unwrap();
    let tests: Vec<&str> =
        list.lines().filter_map(|line| line.strip_suffix(": test")).filter(|test| *test != this).collect();
    assert!(tests.len() > 10, "{list}");
    for test in tests {
        let ended = program().args([test, "--exact"]).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    }
}

#[test]
fn measurements_on_many_threads_do_not_mix() {
    let work = |thread: usize| {
        for round in 0..200 {
            let size = 10 + thread * 1000 + round;
            let measured = measure(|| {
                let first = Raw::new(size);
                drop(Raw::new(7));
                let second = Raw::new(2 * size);
                drop(first);
                second
            });
            let n = size as u64;
            assert_eq!(numbers(&measured), (3 * n, 2 * n, 2 * n as i64, 3 * n + 7, 3, 2));
        }
    };
    let work = &work;
    std::thread::scope(|threads| (0..8).for_each(|thread| drop(threads.spawn(move || work(thread)))));
}

#[test]
fn the_snapshot_of_a_measurement_has_its_blocks() {
    let measured = measure(known);
    let snapshot = measured.snapshot();
    assert_eq!(live(&snapshot), [measured.value.key()]);
    assert_eq!(cpu(&snapshot).peak.blocks.iter().map(|block| block.size).collect::<Vec<_>>(), [400, 700]);
}

/// The panic's message.
fn message(failing: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(failing)).unwrap_err();
    *panic.downcast::<String>().unwrap()
}

#[test]
fn a_failed_assertion_names_the_limit_the_peak_and_the_line() {
    let line = line!() + 1;
    let text = message(|| drop(assert_peak!("1 MiB", std::hint::black_box(vec![0u8; 2 * MIB]))));
    let place = format!("tests/asserting/measure.rs:{line}");
    for part in ["2 * MIB])", "limit of 1.000 MiB", "2.000 MiB (2,097,152 bytes)", &place] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn an_assertion_passes_at_its_limit_and_fails_a_byte_above() {
    assert_eq!(assert_peak!(1000, Raw::new(1000)).size(), 1000);
    let text = message(|| drop(assert_peak!(999, Raw::new(1000))));
    assert!(text.contains("over the limit of 999 B"), "{text}");
}

#[test]
fn an_unreadable_limit_is_a_clear_panic_and_nothing_runs() {
    let mut ran = false;
    let text = message(|| assert_peak!("lots", ran = true));
    assert!(text.contains("cannot read \"lots\" as a size") && !ran, "{text}");
}

#[test]
fn a_measurement_can_be_tried() {
    let measured = try_measure(known).unwrap();
    assert_eq!(numbers(&measured), KNOWN);
    assert_eq!(measured.value.size(), 700);
}
