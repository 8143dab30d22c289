//! Memory assertions: their messages, and errors of wrong use.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::support::{MIB, Raw};
use memtrace::{
    Device, Failure, FutureExt, NoGrowth, NoLeak, PeakLimit, Scales, Scaling, assert_no_growth, assert_no_leak,
    assert_peak, assert_scaling, measure, measure_async, scope,
};

/// The panic's message.
fn message<T>(failing: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| drop(failing()))).unwrap_err();
    *panic.downcast::<String>().unwrap()
}

fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

fn saved(failure: &Failure) -> Vec<u8> {
    let path = failure.snapshot().expect("a snapshot was saved");
    assert!(failure.to_string().contains(&path.display().to_string()), "{failure}");
    let content = std::fs::read(path).unwrap();
    std::fs::remove_file(path).unwrap();
    content
}

#[test]
fn a_failure_saves_the_snapshot_and_prints_a_report() {
    let held = || scope("forward", || std::hint::black_box(vec![0u8; 3 * MIB]));
    let line = format!("tests/asserting/assertions.rs:{}", line!() - 1);
    let failure = PeakLimit::new().limit("1 MiB").name("three").run(held).unwrap_err();
    let text = failure.to_string();
    says(&text, &["the peak of `three`", "3.000 MiB (3,145,728 bytes) on cpu", "limit of 1.000 MiB by 2.000 MiB"]);
    says(&text, &["At the peak, by line", &line, "At the peak, by scope", "forward"]);
    assert_eq!(format!("{failure:?}"), text, "a test that returns it is readable");
    assert!(failure.is_violation());
    assert!(saved(&failure).starts_with(&[0x80]), "a pickle");
}

/// What a terminal or a CI service would act upon.
const HOSTILE: &str = "a\u{1b}[2J\n::error::b\u{202e}";
const VISIBLE: &str = "a\\u{1b}[2J\\n::error::b\\u{202e}";

fn is_safe(text: &str) {
    assert!(!text.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'), "{text:?}");
    assert!(!text.lines().any(|line| line.trim_start().starts_with("::")), "{text}");
}

#[test]
fn names_in_failures_and_errors_are_visible() {
    let held = || scope(HOSTILE, || std::hint::black_box(vec![0u8; 3 * MIB]));
    let failure = PeakLimit::new().limit("1 MiB").name(HOSTILE).run(held).unwrap_err();
    let text = failure.to_string();
    says(&text, &[&format!("the peak of `{VISIBLE}`"), &format!("  {VISIBLE}\n")]);
    is_safe(&text);
    saved(&failure);

    let errors = [memtrace::open(HOSTILE).unwrap_err(), memtrace::output_dir("\0\u{1b}\n::error::").unwrap_err()];
    errors.iter().for_each(|error| is_safe(&error.to_string()));
    is_safe(&memtrace::builder().dump_to(HOSTILE).start().unwrap_err().to_string());
}

#[test]
fn options_precede_the_code_in_any_order() {
    assert_eq!(assert_peak!("2 KiB", name = "a", device = Device::Cpu, Raw::new(2000)).size(), 2000);
    assert_eq!(assert_peak!(name = "a", limit = 2000, Raw::new(2000)).size(), 2000);
    let mut sizes = Vec::with_capacity(10);
    assert_scaling!(Scaling::Linear, device = Device::Cpu, sizes = [4, 1, 2, 2], |size| {
        sizes.push(size);
        Raw::new(size * 10_000)
    });
    assert_eq!(sizes, [1, 1, 2, 4], "the smallest once to warm up");
    let mut runs = 0;
    assert_no_leak!(runs = 4, warmup = 1, runs += 1);
    assert_no_growth!(warmup = 3, iterations = 20, runs += 1);
    assert_eq!(runs, 25);
}

fn all_with(fail_at: usize) -> Result<usize, usize> {
    let mut calls = 0;
    let mut step = || {
        calls += 1;
        if calls == fail_at { Err(calls) } else { Ok(calls) }
    };
    assert_peak!("1 KiB", step()?);
    assert_no_leak!(step()?);
    assert_no_growth!(step()?);
    assert_scaling!(Scaling::Constant, sizes = [1, 2, 4], |_| step()?);
    Ok(calls)
}

#[test]
fn a_question_mark_inside_leaves_the_function_and_nothing_stays_open() {
    let all = all_with(0).unwrap();
    assert_eq!(all, 1 + 5 + 20 + 4);
    for at in 1..=all {
        assert_eq!(all_with(at), Err(at));
        assert_eq!(memtrace::Context::current(), before_all(), "nothing is in force");
    }
}

/// A thread's context with nothing open.
fn before_all() -> memtrace::Context {
    std::thread::spawn(memtrace::Context::current).join().unwrap()
}

#[test]
fn a_block_kept_by_each_run_leaks_and_a_replaced_one_does_not() {
    let mut kept = Vec::with_capacity(256);
    let leak = NoLeak::new().run(|| kept.push((Raw::new(1000), Raw::new(24)))).unwrap_err();
    let line = format!("called at tests/asserting/assertions.rs:{}", line!() - 1);
    says(&leak.to_string(), &["leak of 1.000 KiB with each run: 254.0 KiB (260,096 bytes) in 508 blocks", &line]);
    says(&leak.to_string(), &["from 2 stacks, in 254 runs after 2 warm-up runs", "248.0 KiB     254"]);
    assert!(!saved(&leak).is_empty());
    let mut last = None;
    assert_no_leak!(last = Some(Raw::new(1000)));
    let mut buffers = [None, None];
    let mut turn = 0;
    assert_no_leak!(runs = 5, {
        turn += 1;
        let other = turn % 2;
        // Allocated on one of two lines in alternation.
        if other == 0 { buffers = [Some(Raw::new(500)), None] } else { buffers = [None, Some(Raw::new(500))] }
    });
    drop((kept, last, buffers));
}

#[test]
fn a_replaced_block_is_no_leak_and_a_large_warm_up_hides_none() {
    let (mut last, mut sizes) = (None, [100, 90, 80, 100, 110].into_iter());
    assert_no_leak!(last = sizes.next().map(Raw::new));
    let (mut kept, mut large) = (Vec::with_capacity(256), true);
    let leak = NoLeak::new().run(|| {
        // A large block and then a small one from the same stack.
        kept.push(Raw::new(if std::mem::take(&mut large) { MIB } else { 1000 }));
        kept.retain(|block| kept_len(block) < MIB);
    });
    says(&leak.unwrap_err().to_string(), &["248.0 KiB     254"]);
    drop(last);
}

fn kept_len(block: &Raw) -> usize {
    block.size() as usize
}

#[test]
fn a_session_of_another_test_does_not_change_what_a_stack_is() {
    let _alone = crate::support::alone();
    let (mut kept, mut session) = (None, None);
    let mut run = 0;
    assert_no_leak!({
        run += 1;
        if run == 4 {
            session = Some(memtrace::builder().stack_depth(4).start().unwrap());
        }
        kept = Some(Raw::new(1000));
    });
    drop((kept, session));
}

#[test]
fn a_tolerance_may_be_larger_than_the_peak() {
    let limit = PeakLimit::new().limit("1 MiB").tolerance("200%");
    limit.run(|| Raw::new(10)).unwrap();
}

#[test]
fn growth_is_distinguished_from_a_cache_that_fills_up() {
    let mut cache: Vec<Raw> = Vec::with_capacity(256);
    let mut leaked: Vec<Raw> = Vec::with_capacity(256);
    let grown = NoGrowth::new().run(|| {
        if cache.len() < 4 {
            cache.push(Raw::new(2000));
        }
        leaked.push(Raw::new(300));
    });
    let text = grown.unwrap_err().to_string();
    says(&text, &["memory grows: +300 B with each run; 256 runs, the first 128 as warm-up"]);
    says(&text, &["Grew, then stopped", "run 4  7.812 KiB"]);
    cache.clear();
    assert_no_growth!(if cache.len() < 4 {
        cache.push(Raw::new(2000))
    });
    // The sum grows although each run allocates from another stack.
    let mut ways: Vec<Raw> = Vec::with_capacity(256);
    let all_ways = NoGrowth::new().iterations(20).run(|| {
        let depth = ways.len();
        ways.push(at_depth(depth));
    });
    says(&all_ways.unwrap_err().to_string(), &["+100 B with each run; 256 runs, the first 128"]);
}

#[inline(never)]
fn at_depth(depth: usize) -> Raw {
    let block = if depth == 0 { Raw::new(100) } else { at_depth(depth - 1) };
    std::hint::black_box(block)
}

#[test]
fn faster_growth_than_stated_is_found_in_the_whole_and_in_a_part() {
    let sizes = [8, 16, 32, 64];
    let quadratic = |n: usize| Raw::new(n * n * 100);
    let failure = Scales::new(Scaling::Linear).sizes(sizes).run(quadratic).unwrap_err();
    let text = failure.to_string();
    assert!(text.starts_with("the peak on cpu grows faster than Linear"), "{text}");
    says(&text, &["64: 400.0 KiB"]);
    assert!(!text.contains("cpu: "), "there is only one device:\n{text}");
    Scales::new(Scaling::Quadratic).sizes(sizes).run(quadratic).unwrap();
    Scales::new(Scaling::Power(2.5)).sizes(sizes).run(quadratic).unwrap();
    Scales::new(Scaling::As(|n| (n * n) as f64)).sizes(sizes).run(quadratic).unwrap();
    // 3 % of the peak: small within the whole.
    let part = |n: usize| (Raw::new(n * 200_000), Raw::new(n * n * 100));
    let failure = Scales::new(Scaling::Linear).sizes(sizes).run(part).unwrap_err();
    let line = format!("called at tests/asserting/assertions.rs:{}", line!() - 2);
    says(&failure.to_string(), &["part of the peak on cpu grows faster than Linear", &line]);
    let constant = Scales::new(Scaling::Constant).sizes(sizes).run(|n| Raw::new(n * 1000));
    says(&constant.unwrap_err().to_string(), &["faster than Constant"]);
}

#[test]
fn wrong_use_is_reported_before_anything_runs() {
    let mut ran = false;
    let mut run = || ran = true;
    let wrong = [
        (message(|| assert_peak!("lots", run())), "cannot read \"lots\" as a size; write it like 512 MiB"),
        (message(|| assert_peak!("-1", run())), "as a size"),
        (message(|| assert_peak!(name = "nothing", run())), "give a limit (\"512 MiB\") or a baseline"),
        (
            message(|| assert_peak!("1 MiB", tolerance = "5", run())),
            "cannot read \"5\" as a tolerance; write it like 5%",
        ),
        (message(|| assert_no_leak!(runs = 0, run())), "runs is 0, so nothing would be checked; give 1 or more"),
        (message(|| assert_no_growth!(iterations = 0, run())), "iterations is 0, so nothing would be checked"),
        (message(|| assert_no_growth!(iterations = 19, run())), "19 iterations, 9 of them as warm-up, are too few"),
        (message(|| assert_no_growth!(iterations = 20, warmup = 12, run())), "20 iterations, 12 of them as warm-up"),
        (message(|| assert_scaling!(Scaling::Linear, sizes = [], |_| run())), "too few sizes"),
        (
            message(|| assert_scaling!(Scaling::Linear, sizes = [1, 2, 3], |_| run())),
            "at least four times the smallest",
        ),
        (message(|| assert_scaling!(Scaling::Linear, sizes = [8, 60, 64], |_| run())), "twice the one before it"),
        (message(|| assert_peak!(1, device = Device::Cuda(0), ())), "memory of cuda:0 cannot be seen"),
        (message(|| assert_scaling!(Scaling::Linear, sizes = [0, 2, 9], |_| run())), "three or more above 0"),
    ];
    for (text, part) in &wrong {
        says(text, &[part]);
    }
    assert!(!Scales::new(Scaling::Linear).sizes([8, 60, 64]).run(|_| ()).unwrap_err().is_violation());
    assert!(wrong[0].0.starts_with("assert_peak!: ") && wrong[5].0.starts_with("assert_no_growth!: "));
    assert!(!ran);
}

#[test]
fn assertions_nest() {
    let text = message(|| assert_peak!("1 MiB", assert_peak!("3 MiB", drop(Raw::new(2 * MIB)))));
    says(&text, &["over the limit of 1.000 MiB"]);
    assert_no_leak!(runs = 1, assert_no_growth!(iterations = 20, assert_peak!(100, drop(Raw::new(100)))));
}

#[test]
#[should_panic(expected = "is over the limit of 1.000 KiB by 1.000 KiB")]
fn a_test_may_expect_the_panic() {
    drop(assert_peak!("1 KiB", Raw::new(2048)));
}

#[test]
fn a_test_may_return_the_failure() -> Result<(), Failure> {
    PeakLimit::new().limit(100).run(|| drop(Raw::new(100)))?;
    NoLeak::new().run(|| Raw::new(10))?;
    memtrace::check_peak(5000, &measure(|| drop(Raw::new(5000))))
}

#[test]
fn a_panic_inside_an_assertion_is_passed_on_and_leaves_nothing_open() {
    let purpose = "purpose";
    let fails = || -> usize { panic!("on {purpose}") };
    let outcomes = [
        message(|| assert_peak!("1 KiB", fails())),
        message(|| assert_no_leak!(fails())),
        message(|| assert_scaling!(Scaling::Linear, sizes = [1, 2, 4], |_| fails())),
    ];
    assert_eq!(outcomes, ["on purpose"; 3]);
    assert_eq!(memtrace::Context::current(), before_all());
}

#[tokio::test]
async fn a_future_is_measured_on_the_thread_of_the_test() {
    let size = assert_peak!("1 MiB", {
        let block = Raw::new(1000);
        tokio::task::yield_now().await;
        block.size()
    });
    assert_eq!(size, 1000);
    assert_no_growth!(iterations = 20, tokio::task::yield_now().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_future_is_measured_wherever_it_is_polled_and_so_are_tasks_that_carry_the_context() {
    let request = |size: usize| async move {
        let block = Raw::new(size);
        for _ in 0..20 {
            tokio::task::yield_now().await;
            drop(Raw::new(size / 10));
        }
        block
    };
    // Spawned tasks move between threads, and interleave.
    let all: Vec<_> = (1..=8).map(|n| tokio::spawn(measure_async(request(n * 10_000)))).collect();
    for (n, task) in (1..).zip(all) {
        let measured = task.await.unwrap();
        // Waking the task takes a small amount that comes and goes.
        let (peak, wakes) = (n * 11_000, measured.allocations - 21);
        assert!((peak..peak + 500).contains(&measured.peak) && wakes < 20, "{measured:?}");
        assert!((n * 10_000..n * 10_000 + 500).contains(&measured.leaked), "{measured:?}");
    }
    let carried = measure_async(async {
        let task = tokio::spawn(request(50_000).memtrace("request"));
        task.await.unwrap()
    });
    let carried = carried.await;
    assert!((55_000..60_000).contains(&carried.peak), "{carried:?}");
    let snapshot = carried.snapshot();
    let cpu = snapshot.device(Device::Cpu).unwrap();
    assert!(cpu.live.iter().any(|block| block.size == 50_000 && snapshot.context_path(block.context) == "request"));
    let spawned = measure_async(async { tokio::spawn(request(50_000)).await.unwrap() }).await;
    assert!(spawned.peak < 5_000, "what carries nothing is not counted: {}", spawned.peak);
    let failure = memtrace::check_peak(50_000, &spawned).unwrap_err();
    assert!(failure.is_undecided(), "but it is not forgotten: {failure}");
}

#[test]
fn work_of_a_shared_pool_makes_a_verdict_undecided_where_it_matters() {
    rayon::join(|| (), || ());
    let both = std::sync::Barrier::new(2);
    let half = || {
        both.wait();
        Raw::new(MIB)
    };
    // This thread is not in the pool: both run on workers.
    let measured = measure(|| rayon::join(half, half));
    assert!(measured.peak < 5000, "{}", measured.peak);
    let failure = memtrace::check_peak(MIB as u64, &measured).unwrap_err();
    assert!(failure.is_undecided(), "{failure}");
    says(&failure.to_string(), &["handed-over work: 2.000 MiB in 2 blocks", "tests/asserting/assertions.rs"]);
}

#[test]
fn gemms_buffers_exist_before_a_pool_is_measured() {
    use candle_core::{DType, Tensor};
    let device = candle_core::Device::Cpu;
    let multiply = || {
        let a = Tensor::ones((256, 256), DType::F32, &device).unwrap();
        a.matmul(&a.t().unwrap()).unwrap()
    };
    let measured = memtrace::try_measure_in_pool(2, multiply).unwrap();
    let matrix = 256 * 256 * 4;
    assert!((matrix..matrix + 1000).contains(&measured.leaked), "{measured:?}");
    assert_eq!(measured.unattributed.pool_allocations, 0);
}

fn nested(scopes: usize, f: &mut dyn FnMut()) {
    if scopes == 0 { f() } else { scope("level", || nested(scopes - 1, f)) }
}

#[test]
fn an_impossible_measurement_is_an_error_and_its_code_does_not_run() {
    let mut outcomes = Vec::new();
    for scopes in [63, 64] {
        nested(scopes, &mut || outcomes.push(memtrace::try_measure(|| Raw::new(10))));
    }
    assert_eq!(outcomes[0].as_ref().unwrap().peak, 10);
    let error = outcomes[1].as_ref().unwrap_err().to_string();
    says(&error, &["too many scopes are open on this thread; measure in an outer function"]);
    assert_eq!(memtrace::Context::current(), before_all());
}
