//! Memory pools on a [`SimMachine`] in this process: growth, release, refusals.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "reads simulated memory")]

use memtrace_cusim::code::{INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};
use memtrace_cusim::faults::Faults;
use memtrace_cusim::history::{BlockKind, Op};
use memtrace_cusim::{AllocationRequest, Config, Fill, SimMachine};

const MIB: u64 = 1 << 20;

fn machine(memory: u64) -> SimMachine {
    SimMachine::new(Config { memory, ..Config::default() }).unwrap()
}

fn with_faults(script: &str) -> SimMachine {
    SimMachine::new(Config { faults: Faults::parse(script).unwrap(), ..Config::default() }).unwrap()
}

fn request(kind: BlockKind, size: u64) -> AllocationRequest {
    AllocationRequest { kind, size, ..AllocationRequest::default() }
}

/// Used and reserved bytes of the default pool.
fn counters(machine: &SimMachine) -> (u64, u64) {
    let counters = machine.counters(0, BlockKind::Pool);
    (counters.used, counters.reserved)
}

#[test]
fn a_pool_grows_in_steps_of_32_mib() {
    let mut machine = machine(1 << 30);
    machine.allocate(request(BlockKind::Pool, 1)).unwrap();
    assert_eq!(counters(&machine), (512, 32 * MIB));
    machine.allocate(request(BlockKind::Pool, 31 * MIB)).unwrap();
    assert_eq!(counters(&machine), (31 * MIB + 512, 32 * MIB));
    machine.allocate(request(BlockKind::Pool, MIB)).unwrap();
    assert_eq!(counters(&machine), (32 * MIB + 512, 64 * MIB));
    machine.allocate(request(BlockKind::Pool, 65 * MIB)).unwrap();
    assert_eq!(counters(&machine).1, (64 + 96) * MIB);
}

#[test]
fn a_synchronise_gives_empty_segments_back() {
    let mut machine = machine(1 << 30);
    let first = machine.allocate(request(BlockKind::Pool, 32 * MIB)).unwrap();
    let second = machine.allocate(request(BlockKind::Pool, 32 * MIB)).unwrap();
    machine.free(first, 0, 0).unwrap();
    assert_eq!(counters(&machine), (32 * MIB, 64 * MIB));
    machine.synchronise(0);
    assert_eq!(counters(&machine), (32 * MIB, 32 * MIB));
    machine.free(second, 0, 0).unwrap();
    machine.synchronise(0);
    assert_eq!(counters(&machine), (0, 0));
    let high = machine.counters(0, BlockKind::Pool);
    assert_eq!((high.used_high, high.reserved_high), (64 * MIB, 64 * MIB));
    let ops: Vec<Op> = machine.history().records().iter().map(|record| record.op).collect();
    assert_eq!(ops, [Op::Alloc, Op::Alloc, Op::Free, Op::Release, Op::Free, Op::Release]);
}

#[test]
fn capacity_counts_what_is_reserved() {
    let mut machine = machine(64 * MIB);
    let first = machine.allocate(request(BlockKind::Pool, MIB)).unwrap();
    machine.allocate(request(BlockKind::Pool, 32 * MIB)).unwrap();
    assert_eq!(machine.memory(0), (0, 64 * MIB));
    assert_eq!(machine.allocate(request(BlockKind::Classic, 1)), Err(OUT_OF_MEMORY));
    machine.free(first, 0, 0).unwrap();
    // Without a synchronization, an allocation gets what other pools do not use.
    machine.allocate(request(BlockKind::Classic, 1)).unwrap();
    assert_eq!(counters(&machine), (32 * MIB, 32 * MIB));
    assert_eq!(machine.memory(0).0, 30 * MIB);
}

#[test]
fn the_last_megabytes_can_be_had() {
    let mut machine = machine(35 * MIB);
    machine.allocate(request(BlockKind::Pool, 32 * MIB)).unwrap();
    machine.allocate(request(BlockKind::Pool, MIB)).unwrap();
    assert_eq!(counters(&machine), (33 * MIB, 34 * MIB));
    assert_eq!(machine.allocate(request(BlockKind::Pool, 2 * MIB)), Err(OUT_OF_MEMORY));
}

#[test]
fn classic_memory_is_given_back_at_once() {
    let mut machine = machine(1 << 30);
    let address = machine.allocate(request(BlockKind::Classic, 3 * MIB)).unwrap();
    assert_eq!(machine.counters(0, BlockKind::Classic).reserved, 4 * MIB);
    machine.free(address, 0, 0).unwrap();
    assert_eq!(machine.counters(0, BlockKind::Classic).reserved, 0);
}

#[test]
fn managed_memory_may_exceed_the_device() {
    let mut machine = machine(64 * MIB);
    machine.allocate(request(BlockKind::Managed, 256 * MIB)).unwrap();
    assert_eq!(machine.memory(0), (64 * MIB, 64 * MIB));
}

#[test]
fn what_is_not_there_cannot_be_freed() {
    let mut machine = machine(1 << 30);
    let address = machine.allocate(request(BlockKind::Pool, 4096)).unwrap();
    assert_eq!(machine.free(address + 512, 0, 0), Err(INVALID_VALUE));
    machine.free(address, 0, 0).unwrap();
    assert_eq!(machine.free(address, 0, 0), Err(INVALID_VALUE));
    assert_eq!(machine.free(0x10, 0, 0), Err(INVALID_VALUE));
    assert_eq!(machine.history().records().last().unwrap().result, INVALID_VALUE);
}

#[test]
fn addresses_are_not_used_again_soon_unless_asked_for() {
    let mut late = machine(1 << 30);
    late.allocate(request(BlockKind::Pool, MIB)).unwrap();
    let first = late.allocate(request(BlockKind::Pool, MIB)).unwrap();
    late.free(first, 0, 0).unwrap();
    for _ in 0..20 {
        let next = late.allocate(request(BlockKind::Pool, MIB)).unwrap();
        assert_ne!(next, first);
        late.free(next, 0, 0).unwrap();
    }
    let mut immediate = with_faults("reuse=immediate");
    let blocks: Vec<u64> = (0..4).map(|_| immediate.allocate(request(BlockKind::Pool, MIB)).unwrap()).collect();
    for address in &blocks {
        immediate.free(*address, 0, 0).unwrap();
    }
    let again: Vec<u64> = (0..4).map(|_| immediate.allocate(request(BlockKind::Pool, MIB)).unwrap()).collect();
    assert_eq!(again, blocks.into_iter().rev().collect::<Vec<_>>(), "the last freed comes first");
}

#[test]
fn faults_leave_things_as_they_were() {
    let mut machine = with_faults("oom@alloc:2; fail(700)@free:1; oom@size>=1GiB");
    let address = machine.allocate(request(BlockKind::Pool, 512)).unwrap();
    assert_eq!(machine.allocate(request(BlockKind::Pool, 512)), Err(OUT_OF_MEMORY));
    assert_eq!(machine.allocate(request(BlockKind::Pool, 1 << 30)), Err(OUT_OF_MEMORY));
    assert_eq!(machine.free(address, 0, 0), Err(700));
    assert_eq!(counters(&machine).0, 512);
    machine.free(address, 0, 0).unwrap();
    assert_eq!(counters(&machine).0, 0);
    let results: Vec<u32> = machine.history().records().iter().map(|record| record.result).collect();
    assert_eq!(results, [0, 2, 2, 700, 0]);
}

#[test]
fn without_pools_there_is_classic_memory_only() {
    let mut machine = SimMachine::new(Config { pools: false, ..Config::default() }).unwrap();
    assert_eq!(machine.allocate(request(BlockKind::Pool, 1)), Err(NOT_SUPPORTED));
    machine.allocate(request(BlockKind::Classic, 1)).unwrap();
}

#[test]
fn random_bytes_are_the_same_in_each_run() {
    let contents = || {
        let mut machine = SimMachine::new(Config { fill: Fill::Random, ..Config::default() }).unwrap();
        let address = machine.allocate(request(BlockKind::Pool, 512)).unwrap();
        // SAFETY: a live, aligned block of 64 words.
        unsafe { (address as *const [u64; 64]).read() }
    };
    let first = contents();
    assert_eq!(first, contents());
    assert!(first.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn huge_sizes_are_refused() {
    let mut machine = machine(1 << 30);
    for size in [u64::MAX, u64::MAX / 2, (1 << 30) + 1] {
        assert_eq!(machine.allocate(request(BlockKind::Pool, size)), Err(OUT_OF_MEMORY), "{size}");
        assert_eq!(machine.allocate(request(BlockKind::Classic, size)), Err(OUT_OF_MEMORY), "{size}");
    }
    assert_eq!(machine.allocate(request(BlockKind::Classic, 0)), Err(INVALID_VALUE));
    assert_eq!(machine.memory(0).0, 1 << 30);
}
