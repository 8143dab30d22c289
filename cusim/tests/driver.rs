//! The built library as a program sees it. Each test runs in a process of its own.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "a driver is called through C")]

#[path = "support/records.rs"]
mod records;
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use memtrace_cusim::code::{INVALID_CONTEXT, INVALID_VALUE, NOT_FOUND, NOT_INITIALIZED, OUT_OF_MEMORY};
use memtrace_cusim::history::{BlockKind, Op};
use records::records;
use support::{Driver, in_child};

const GIB: usize = 1 << 30;

/// The resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn nothing_works_before_init_or_without_a_context() {
    in_child("nothing_works_before_init_or_without_a_context", &[], || {
        let driver = Driver::load();
        let (mut count, mut address) = (0, 0);
        assert_eq!(driver.device_count(&mut count), NOT_INITIALIZED);
        assert_eq!(driver.init(0), 0);
        assert_eq!(driver.alloc(&mut address, 1), INVALID_CONTEXT);
        assert_eq!(driver.alloc_async(&mut address, 1, 2), INVALID_CONTEXT);
        driver.enter(0);
        assert_eq!(driver.alloc_async(&mut address, 1, 2), 0);
        let other = std::thread::spawn(move || driver.free_async(address, 2)).join().unwrap();
        assert_eq!(other, INVALID_CONTEXT, "another thread has no context");
        assert_eq!(driver.free_async(address, 2), 0);
    });
}

#[test]
fn eighty_gibibytes_cost_nothing() {
    in_child("eighty_gibibytes_cost_nothing", &[], || {
        let driver = Driver::start();
        let before = resident_kib();
        let mut addresses = [0; 79];
        for address in &mut addresses {
            assert_eq!(driver.alloc_async(address, GIB, 0), 0);
            assert_eq!(driver.fill(*address, 0, GIB, 0), 0);
        }
        let (mut free, mut total, mut refused) = (0, 0, 0);
        assert_eq!(driver.memory(&mut free, &mut total), 0);
        assert_eq!((free, total), (GIB, 80 * GIB));
        assert_eq!(driver.alloc_async(&mut refused, GIB + 1, 0), OUT_OF_MEMORY);
        let last = addresses[78] + GIB as u64 - 4;
        assert_eq!(driver.to_device(last, [1, 2, 3, 4].as_ptr(), 4), 0);
        let mut read = [9; 4];
        assert_eq!(driver.to_host(read.as_mut_ptr(), last, 4), 0);
        assert_eq!(read, [1, 2, 3, 4]);
        let cost = resident_kib().saturating_sub(before);
        assert!(cost < 4096, "{cost} KiB");
    });
}

/// The free bytes, all bytes, and whether the GPU is an integrated one.
fn of_gpu(driver: Driver) -> (usize, usize, i32) {
    let (mut free, mut total, mut integrated) = (0, 0, 0);
    assert_eq!((driver.memory(&mut free, &mut total), driver.device_attribute(&mut integrated, 18, 0)), (0, 0));
    (free, total, integrated)
}

#[test]
fn an_integrated_gpu_calls_the_page_cache_used_and_gives_its_memory_all_the_same() {
    let name = "an_integrated_gpu_calls_the_page_cache_used_and_gives_its_memory_all_the_same";
    let variables =
        [("MEMTRACE_CUSIM_MEMORY", "10GiB"), ("MEMTRACE_CUSIM_INTEGRATED", "1"), ("MEMTRACE_CUSIM_PAGE_CACHE", "6GiB")];
    in_child(name, &variables, || {
        let (driver, mut address) = (Driver::start(), 0);
        assert_eq!(of_gpu(driver), (4 * GIB, 10 * GIB, 1));
        assert_eq!((driver.alloc(&mut address, GIB), of_gpu(driver).0), (0, 3 * GIB));
        assert_eq!((driver.alloc(&mut address, 8 * GIB), of_gpu(driver).0), (0, 0));
        assert_eq!(driver.alloc(&mut address, GIB + 1), OUT_OF_MEMORY);
    });
}

#[test]
fn an_integrated_gpu_has_the_hosts_memory() {
    in_child("an_integrated_gpu_has_the_hosts_memory", &[("MEMTRACE_CUSIM_INTEGRATED", "1")], || {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
        let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
        let (free, total, integrated) = of_gpu(Driver::start());
        assert_eq!((total, integrated), (kib << 10, 1));
        assert!(free < total, "there is a page cache");
    });
}

#[test]
fn a_gpu_of_its_own_memory_counts_no_page_cache() {
    in_child("a_gpu_of_its_own_memory_counts_no_page_cache", &[("MEMTRACE_CUSIM_PAGE_CACHE", "6GiB")], || {
        assert_eq!(of_gpu(Driver::start()), (80 * GIB, 80 * GIB, 0));
    });
}

#[test]
fn memory_reads_as_zero_also_when_it_is_used_again() {
    let reuse = [("MEMTRACE_CUSIM_FAULTS", "reuse=immediate")];
    in_child("memory_reads_as_zero_also_when_it_is_used_again", &reuse, || {
        let driver = Driver::start();
        // Moves the other blocks away from a page boundary.
        assert_eq!(driver.alloc_async(&mut 0, 1, 0), 0);
        for size in [1, 100, 4096, 10_000, 100_000] {
            let mut addresses = [0; 2];
            for address in &mut addresses {
                let mut read = vec![9; size];
                assert_eq!(driver.alloc_async(address, size, 0), 0);
                assert_eq!(driver.to_host(read.as_mut_ptr(), *address, size), 0);
                assert!(read.iter().all(|byte| *byte == 0));
                assert_eq!(driver.fill(*address, 7, size, 0), 0);
                assert_eq!(driver.free_async(*address, 0), 0);
            }
            assert_eq!(addresses[0], addresses[1]);
        }
    });
}

#[test]
fn copies_copy_and_stay_within_blocks() {
    in_child("copies_copy_and_stay_within_blocks", &[("MEMTRACE_CUSIM_DEVICES", "2")], || {
        let driver = Driver::start();
        let (mut from, mut to, mut on_peer, mut context) = (0, 0, 0, 0);
        assert_eq!(driver.primary_retain(&mut context, 0), 0);
        assert_eq!(driver.alloc_async(&mut from, 1000, 0), 0);
        assert_eq!(driver.alloc(&mut to, 1000), 0);
        let peer = driver.enter(1);
        assert_eq!(driver.alloc_async(&mut on_peer, 1000, 0), 0);
        let data: Vec<u8> = (0..=249).cycle().take(1000).collect();
        assert_eq!(driver.to_device(from, data.as_ptr(), 1000), 0);
        assert_eq!(driver.on_device(to, from, 1000, 0), 0);
        assert_eq!(driver.to_peer(on_peer, peer, to, context, 1000), 0);
        let mut read = vec![0; 1000];
        assert_eq!(driver.to_host(read.as_mut_ptr(), on_peer, 1000), 0);
        assert_eq!(read, data);
        assert_eq!(driver.fill_words(to, 0x0102_0304, 250), 0);
        assert_eq!(driver.to_host(read.as_mut_ptr(), to, 1000), 0);
        assert_eq!(read[996..], [4, 3, 2, 1]);
        assert_eq!(driver.to_device(from, data.as_ptr(), 2000), INVALID_VALUE);
        assert_eq!(driver.to_device(read.as_ptr() as u64, data.as_ptr(), 10), INVALID_VALUE, "host memory");
        assert_eq!(driver.free_async(from, 0), 0);
        assert_eq!(driver.to_host(read.as_mut_ptr(), from, 1), INVALID_VALUE);
    });
}

#[test]
fn pools_have_thresholds_and_high_marks() {
    in_child("pools_have_thresholds_and_high_marks", &[], || {
        let driver = Driver::start();
        let (mut pool, mut address, mut reserved) = (0, 0, 0);
        assert_eq!(driver.pool_default(&mut pool, 0), 0);
        assert_eq!(driver.pool_set_attribute(pool, 4, &mut (1 << 40)), 0);
        assert_eq!(driver.alloc_async(&mut address, 100 << 20, 0), 0);
        assert_eq!(driver.free_async(address, 0), 0);
        assert_eq!(driver.synchronize(), 0);
        assert_eq!(driver.pool_attribute(pool, 5, &mut reserved), 0);
        assert_eq!(reserved, 128 << 20, "the threshold holds it");
        assert_eq!(driver.pool_trim(pool, 0), 0);
        assert_eq!(driver.pool_attribute(pool, 5, &mut reserved), 0);
        assert_eq!(reserved, 0);
        assert_eq!(driver.pool_attribute(pool, 6, &mut reserved), 0);
        assert_eq!(reserved, 128 << 20);
        assert_eq!(driver.pool_set_attribute(pool, 6, &mut 0), 0);
        assert_eq!(driver.pool_attribute(pool, 6, &mut reserved), 0);
        assert_eq!(reserved, 0);
    });
}

#[test]
fn pointers_know_their_segment() {
    in_child("pointers_know_their_segment", &[], || {
        let driver = Driver::start();
        let (mut first, mut address, mut value, mut pool) = (0, 0, 0, 0);
        assert_eq!(driver.alloc_async(&mut first, 512, 0), 0);
        assert_eq!(driver.alloc_async(&mut address, 5000, 0), 0);
        assert_eq!(driver.pool_default(&mut pool, 0), 0);
        for (attribute, expected) in [(11, address), (12, 5000), (17, pool), (18, 32 << 20), (19, first), (20, 2)] {
            assert_eq!(driver.pointer_attribute(&mut value, attribute, address + 1), 0);
            assert_eq!(value, expected, "attribute {attribute}");
        }
        assert_eq!(driver.pointer_attribute(&mut value, 2, &raw const pool as u64), INVALID_VALUE);
    });
}

#[test]
fn a_context_takes_its_memory_along() {
    in_child("a_context_takes_its_memory_along", &[], || {
        let driver = Driver::start();
        let (mut context, mut address) = (0, 0);
        assert_eq!(driver.context_create(&mut context, 0, 0), 0);
        assert_eq!(driver.alloc(&mut address, 3 << 20), 0);
        assert_eq!(driver.context_destroy(context), 0);
        let last = *records(driver).last().unwrap();
        assert_eq!((last.op, last.kind, last.address, last.size), (Op::Bulk, BlockKind::Classic, address, 3 << 20));
        assert_eq!((last.context, last.used, last.reserved), (context, 0, 0));
        driver.enter(0);
        assert_eq!(driver.free(address), INVALID_VALUE);
    });
}

#[test]
fn lookup_gives_the_addresses_that_dlsym_gives() {
    in_child("lookup_gives_the_addresses_that_dlsym_gives", &[], || {
        let driver = Driver::load();
        let look_up = |name: &std::ffi::CStr, version, flags| {
            let (mut function, mut status) = (0, 9);
            let code = driver.proc_address(name.as_ptr(), &mut function, version, flags, &mut status);
            assert_eq!(status, u32::from(code != 0));
            (code, function)
        };
        for (name, version, flags, symbol) in [
            (c"cuMemAlloc", 4000, 0, c"cuMemAlloc_v2"),
            (c"cuMemAllocAsync", 11020, 1, c"cuMemAllocAsync"),
            (c"cuMemAllocAsync", 11020, 2, c"cuMemAllocAsync_ptsz"),
            (c"cuMemcpyHtoD", 4000, 2, c"cuMemcpyHtoD_v2_ptds"),
            (c"cuMemcpyHtoDAsync", 7000, 2, c"cuMemcpyHtoDAsync_v2_ptsz"),
            (c"cuMemFree", 12000, 2, c"cuMemFree_v2"),
            (c"cuGetProcAddress", 11030, 0, c"cuGetProcAddress"),
            (c"cuGetProcAddress", 12000, 0, c"cuGetProcAddress_v2"),
            (c"cuCtxCreate", 11000, 0, c"cuCtxCreate_v2"),
            (c"cuGraphInstantiate", 11000, 0, c"cuGraphInstantiate_v2"),
            (c"cuGraphInstantiate", 12000, 0, c"cuGraphInstantiateWithFlags"),
            (c"cuGraphAddNode", 13000, 0, c"cuGraphAddNode_v2"),
            (c"cuStreamGetCaptureInfo", 12030, 2, c"cuStreamGetCaptureInfo_v3_ptsz"),
            (c"cuCtxCreate", 13000, 0, c"cuCtxCreate_v4"),
        ] {
            assert_eq!(look_up(name, version, flags), (0, driver.address(symbol)), "{name:?} {version} {flags}");
        }
        assert_eq!(look_up(c"cuNothing", 13000, 0), (NOT_FOUND, 0));
    });
}

#[test]
fn the_programs_malloc_is_left_alone() {
    let one_arena = [("MALLOC_ARENA_MAX", "1")];
    in_child("the_programs_malloc_is_left_alone", &one_arena, || {
        let driver = Driver::start();
        // SAFETY: reads counters of the C library.
        let in_use = || unsafe { libc::mallinfo2() }.uordblks;
        let work = || {
            let before = in_use();
            let (mut addresses, mut handle) = ([0; 500], 0);
            for address in &mut addresses {
                assert_eq!(driver.alloc_async(address, 100_000, 2), 0);
                assert_eq!(driver.event_create(&mut handle, 0), 0);
                assert_eq!(driver.stream_create(&mut handle, 0), 0);
            }
            assert_eq!(driver.load_module(&mut handle, c".visible .entry a()".to_bytes_with_nul().as_ptr()), 0);
            let (mut graph, mut stream, mut executable) = (0, 0, 0);
            assert_eq!((driver.stream_create(&mut stream, 0), driver.begin_capture(stream, 0)), (0, 0));
            assert_eq!(driver.alloc_async(&mut addresses[0], 5000, stream), 0);
            assert_eq!(driver.end_capture(stream, &mut graph), 0);
            assert_eq!((driver.instantiate(&mut executable, graph, 0), driver.launch(executable, stream)), (0, 0));
            assert_eq!(driver.memory_create(&mut handle, 2 << 20, &[1, 1, 0, 0], 0), 0);
            assert_eq!(driver.address_reserve(&mut addresses[0], 2 << 20, 0, 0, 0), 0);
            assert_eq!(driver.map(addresses[0], 2 << 20, 0, handle, 0), 0);
            assert_eq!(driver.array_create(&mut handle, &[10, 10, 1 | 1 << 32]), 0);
            in_use() - before
        };
        // The test runner's own thread sometimes allocates, too.
        assert!((0..10).any(|_| work() == 0));
    });
}

#[test]
fn every_name_of_the_driver_is_there() {
    let names = include_str!("../symbols/driver.txt");
    in_child("every_name_of_the_driver_is_there", &[], || {
        let driver = Driver::load();
        for name in names.lines() {
            let name = std::ffi::CString::new(name).unwrap();
            assert_ne!(driver.address(&name), 0, "{name:?}");
        }
    });
}

#[test]
fn what_is_not_simulated_says_so_once() {
    let errors = in_child("what_is_not_simulated_says_so_once", &[], || {
        let driver = Driver::load();
        assert_eq!(driver.graph_destroy_node(0), 801);
        assert_eq!(driver.graph_destroy_node(0), 801);
    });
    assert_eq!(errors.matches("memtrace-cusim: cuGraphDestroyNode is not simulated\n").count(), 1, "{errors}");
}

#[test]
fn a_script_makes_calls_fail_and_slow() {
    let script = "fail(100)@init:2; oom@alloc:2; fail@free:1; fail@event:2; slow@stream:20ms; late@stream:10ms";
    in_child("a_script_makes_calls_fail_and_slow", &[("MEMTRACE_CUSIM_FAULTS", script)], || {
        let driver = Driver::start();
        assert_eq!(driver.init(0), 100);
        let (mut address, mut other) = (0, 0);
        assert_eq!(driver.alloc_async(&mut address, 1, 0), 0);
        assert_eq!(driver.alloc_async(&mut other, 1, 0), OUT_OF_MEMORY);
        assert_eq!(driver.free_async(address, 0), 999);
        assert_eq!(driver.free_async(address, 0), 0);
        assert_eq!((driver.event_create(&mut other, 0), driver.event_create(&mut other, 0)), (0, 999));
        let began = std::time::Instant::now();
        assert_eq!(driver.stream_create(&mut other, 0), 0);
        assert!(began.elapsed().as_millis() >= 30);
    });
}

#[test]
fn kernels_are_checked_by_name_where_there_is_ptx() {
    in_child("kernels_are_checked_by_name_where_there_is_ptx", &[], || {
        let driver = Driver::start();
        let (mut module, mut function) = (0, 0);
        let ptx = b".version 9.0\n.visible .entry add_f32(\n)\n{ ret; }\n\0";
        assert_eq!(driver.load_module(&mut module, ptx.as_ptr()), 0);
        assert_eq!(driver.get_function(&mut function, module, c"add_f32".as_ptr()), 0);
        assert_eq!(driver.get_function(&mut function, module, c"add_f16".as_ptr()), NOT_FOUND);
        assert_eq!(driver.load_module(&mut module, c".version 9.0\n".to_bytes_with_nul().as_ptr()), 0);
        assert_eq!(driver.get_function(&mut function, module, c"any".as_ptr()), 0);
    });
}

#[test]
fn captures_break_when_something_else_is_done() {
    in_child("captures_break_when_something_else_is_done", &[], || {
        let driver = Driver::start();
        let (mut stream, mut graph, mut status, mut free, mut total) = (0, 0, 9, 0, 0);
        assert_eq!(driver.stream_create(&mut stream, 0), 0);
        assert_eq!(driver.begin_capture(stream, 0), 0);
        let mut relaxed = 2;
        assert_eq!(driver.exchange_mode(&mut relaxed), 0);
        assert_eq!((relaxed, driver.memory(&mut free, &mut total)), (0, 0), "relaxed threads may ask");
        assert_eq!((driver.is_capturing(stream, &mut status), status), (0, 1));
        assert_eq!(driver.exchange_mode(&mut relaxed), 0);
        assert_eq!(driver.memory(&mut free, &mut total), 900);
        assert_eq!((driver.is_capturing(stream, &mut status), status), (0, 2));
        assert_eq!(driver.end_capture(stream, &mut graph), 901);
        let ask_elsewhere = || {
            std::thread::spawn(move || {
                driver.enter(0);
                driver.memory(&mut 0, &mut 0)
            })
            .join()
            .unwrap()
        };
        assert_eq!((driver.begin_capture(stream, 0), ask_elsewhere()), (0, 900), "global: no thread may ask");
        assert_eq!(driver.end_capture(stream, &mut graph), 901);
        assert_eq!((driver.begin_capture(stream, 1), ask_elsewhere()), (0, 0), "thread-local: others may");
        assert_eq!(driver.end_capture(stream, &mut graph), 0);
        assert_eq!((driver.begin_capture(stream, 0), driver.end_capture(stream, &mut graph)), (0, 0));
        assert_ne!(graph, 0);
    });
}

#[test]
fn pinned_memory_is_in_the_log() {
    in_child("pinned_memory_is_in_the_log", &[], || {
        let driver = Driver::start();
        let mut address = 0;
        assert_eq!(driver.host_alloc(&mut address, 10_000, 0), 0);
        // SAFETY: the driver allocated that memory.
        unsafe { (address as *mut [u8; 10_000]).write([1; 10_000]) };
        assert_eq!((driver.host_free(address), driver.host_free(address)), (0, INVALID_VALUE));
        let seen: Vec<_> =
            records(driver).iter().map(|record| (record.op, record.kind, record.size, record.result)).collect();
        let expected = [(Op::Alloc, 10_000, 0), (Op::Free, 10_000, 0), (Op::Free, 0, 1)];
        assert_eq!(seen, expected.map(|(op, size, result)| (op, BlockKind::Pinned, size, result)));
    });
}

#[test]
fn threads_are_counted_exactly() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 500;
    let log = std::env::temp_dir().join(format!("cusim-threads-{}", std::process::id()));
    let variables = [("MEMTRACE_CUSIM_LOG", log.to_str().unwrap())];
    in_child("threads_are_counted_exactly", &variables, || {
        let driver = Driver::start();
        let bytes = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let bytes = &bytes;
                scope.spawn(move || work(driver, thread, bytes));
            }
        });
        let records = records(driver);
        assert!(records.iter().zip(1..).all(|(record, number)| record.number == number));
        let streams = |op| records.iter().filter(move |record| record.op == op).map(|record| record.stream);
        assert!(streams(Op::Alloc).all(|stream| stream == 2), "the thread's own stream");
        let sum = |op| records.iter().filter(|record| record.op == op).map(|record| record.size).sum::<u64>();
        assert_eq!(sum(Op::Alloc), bytes.load(Ordering::Relaxed) as u64);
        assert_eq!(sum(Op::Free), sum(Op::Alloc));
        assert_eq!(records.iter().rfind(|record| record.op != Op::Release).unwrap().used, 0);
    });
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("\tAlloc\tPool\t0\t0\t")).count(), THREADS * ROUNDS);
    assert!(text.lines().all(|line| line.split('\t').count() == 12));

    fn work(driver: Driver, thread: usize, bytes: &AtomicUsize) {
        driver.enter(0);
        for round in 0..ROUNDS {
            let (size, mut address) = (1 + (thread * 7919 + round * 104_729) % 100_000, 0);
            assert_eq!(driver.alloc_async_ptsz(&mut address, size, 0), 0);
            assert_eq!(driver.fill(address, thread as u8, size, 2), 0);
            let mut last = 99;
            assert_eq!(driver.to_host(&mut last, address + size as u64 - 1, 1), 0);
            assert_eq!(usize::from(last), thread);
            assert_eq!(driver.free_async(address, 2), 0);
            assert_eq!(driver.stream_synchronize(2), 0);
            bytes.fetch_add(size, Ordering::Relaxed);
        }
    }
}

/// What the host itself has written is read as it is.
fn results_are(test: &str, results: &str, least: u32, most: u32) {
    in_child(test, &[("MEMTRACE_CUSIM_RESULTS", results)], || {
        let driver = Driver::start();
        let (mut address, mut read) = (0, [[0u32; 256]; 2]);
        assert_eq!(driver.alloc(&mut address, 1024), 0);
        for read in &mut read {
            assert_eq!(driver.to_host(read.as_mut_ptr().cast(), address, 1024), 0);
            assert!(read.iter().all(|value| (least..=most).contains(value)), "{read:?}");
        }
        assert_ne!(read[0], read[1]);
        assert_eq!(driver.fill(address, 7, 1, 0), 0);
        assert_eq!(
            (driver.to_host(read[0].as_mut_ptr().cast(), address, 1024), read[0][..2].to_vec()),
            (0, vec![7, 0])
        );
    });
}

#[test]
fn results_that_a_program_reads_may_be_floats() {
    results_are("results_that_a_program_reads_may_be_floats", "floats", 0.5f32.to_bits(), 1f32.to_bits() - 1);
}

#[test]
fn results_that_a_program_reads_may_be_integers() {
    results_are("results_that_a_program_reads_may_be_integers", "integers", 11, 14);
}

#[test]
fn the_machine_is_as_the_environment_says() {
    let variables = [
        ("MEMTRACE_CUSIM_DEVICES", "3"),
        ("MEMTRACE_CUSIM_MEMORY", "512MiB"),
        ("MEMTRACE_CUSIM_CAPABILITY", "80"),
        ("MEMTRACE_CUSIM_POOLS", "0"),
        ("MEMTRACE_CUSIM_FILL", "ones"),
    ];
    in_child("the_machine_is_as_the_environment_says", &variables, || {
        let driver = Driver::start();
        let (mut count, mut value, mut free, mut total, mut address) = (0, 9, 0, 0, 0);
        assert_eq!((driver.device_count(&mut count), count), (0, 3));
        for (attribute, expected) in [(75, 8), (76, 0), (115, 0)] {
            assert_eq!((driver.device_attribute(&mut value, attribute, 2), value), (0, expected));
        }
        assert_eq!((driver.memory(&mut free, &mut total), total), (0, 512 << 20));
        assert_eq!(driver.alloc_async(&mut address, 1, 0), 801);
        assert_eq!(driver.alloc(&mut address, 2), 0);
        let mut read = [0; 2];
        assert_eq!((driver.to_host(read.as_mut_ptr(), address, 2), read), (0, [0xFF; 2]));
        assert_eq!(driver.primary_release(0), 0);
    });
}
