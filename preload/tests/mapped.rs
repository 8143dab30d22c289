//! Memory that a program in C maps itself, and what its resident memory is made of.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]

mod support;

use std::fs;

use memtrace::analysis::{Balance, BalanceItem, balance, line_and_callers, mapped};
use memtrace::snapshot::{MappingKind, MemoryKind};
use memtrace::{Device, DeviceView, Recording, SnapshotData, open};
use memtrace_core::analysis::at_reading;
use support::{built, compile, preloaded, recorded};

/// Lines are counted from the first one. Each `fill` writes a byte in every page of the first so many MiB.
const PROGRAM: &str = r#"#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define MIB (1L << 20)
static char variables[20 * MIB];
static void fill(char *at, long mib) { for (long n = 0; n < mib * MIB; n += 4096) at[n] = 1; }
static char *map(long mib, int file) {
    int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    return mmap(0, mib * MIB, PROT_READ | PROT_WRITE, kind, file, 0); /* 13 */
}
static pthread_barrier_t both;
static void *thread(void *nothing) {
    free(malloc(64));
    char here[5 * MIB];
    fill(here, 5);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    return here[4096] ? 0 : nothing;
}
int main(void) {
    fill(variables, 10);
    char *touched = malloc(30 * MIB), *untouched = malloc(200 * MIB), *small[40000];
    fill(touched, 30);
    for (int n = 0; n < 40000; n++) memset(small[n] = malloc(1000), 1, 1000);
    for (int n = 0; n < 39999; n++) free(small[n]);
    char *moved = mremap(map(16, -1), 16 * MIB, 64 * MIB, MREMAP_MAYMOVE);
    fill(moved, 40);
    munmap(moved + 50 * MIB, 14 * MIB);
    int file = open("weights.bin", O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, 24 * MIB)) return 1;
    char *weights = map(24, file);
    close(file);
    fill(weights, 24);
    pthread_t other;
    pthread_barrier_init(&both, 0, 2);
    pthread_create(&other, 0, thread, 0);
    pthread_barrier_wait(&both);
    char *last = malloc(60 * MIB);
    fill(last, 60);
    usleep(700000);
    pthread_barrier_wait(&both);
    pthread_join(other, 0);
    free(touched);
    free(untouched);
    free(last);
    munmap(weights, 24 * MIB);
    return 0;
}
"#;

const MIB: i64 = 1 << 20;

fn recording() -> SnapshotData {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("program.c"), PROGRAM).unwrap();
    compile(folder.path(), "cc", "-g -O1 -fno-builtin -w -pthread -o program program.c");
    let library = built("libmemtrace_preload.so");
    let output = recorded(preloaded(folder.path(), &[&library], folder.path().join("program")));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (*open(folder.path().join("heap.memtrace")).unwrap()).clone()
}

fn bytes_of(balance: &Balance, item: &BalanceItem) -> i64 {
    balance.rows.iter().find(|row| row.item == *item).map_or(0, |row| row.bytes)
}

fn close_to(found: i64, mib: i64) -> bool {
    (found - mib * MIB).abs() <= MIB
}

#[test]
fn each_part_of_resident_memory_has_its_row_and_nothing_is_unexplained() {
    let data = recording();
    let found = balance(&DeviceView::of(&data, &data.devices[0])).unwrap();
    let of = |item| bytes_of(&found, &item);
    let expected = [
        (BalanceItem::Live(MemoryKind::Heap), 290),
        (BalanceItem::Kept, 38),
        (BalanceItem::Files, 24),
        (BalanceItem::Anonymous, 40),
        (BalanceItem::Stacks, 5),
        (BalanceItem::Unexplained, 0),
    ];
    for (item, mib) in expected {
        assert!(close_to(of(item.clone()), mib), "{item:?} {found:?}");
    }
    // A tenth more is resident at some time while the last block is written, or later.
    assert!((-245 * MIB..=-199 * MIB).contains(&of(BalanceItem::Untouched)), "{found:?}");
    // Beside its variables there are libraries.
    assert!((10 * MIB..30 * MIB).contains(&of(BalanceItem::Code)), "{found:?}");
    assert!((1..20 * MIB).contains(&of(BalanceItem::Own)), "{found:?}");
    assert_eq!(found.rows.iter().map(|row| row.bytes).sum::<i64>(), found.used as i64);
}

#[test]
fn what_was_mapped_has_its_line_wherever_it_moved() {
    let data = recording();
    let recording = Recording::new(&data);
    let (mappings, then) = recording.device(Device::Cpu).and_then(at_reading).unwrap();
    let rows: Vec<_> = mapped(mappings, &then.blocks).collect();
    let line = |kind| {
        let row = rows.iter().filter(|row| row.kind == kind).max_by_key(|row| row.resident).unwrap();
        (line_and_callers(&recording, row.stack, 2), row.size as i64, row.resident as i64)
    };
    let (lines, size, resident) = line(MappingKind::Anonymous);
    assert!(lines[0].ends_with("program.c:13 (map)") && lines[1].contains("program.c:30 (main)"), "{lines:?}");
    assert!(size == 50 * MIB && close_to(resident, 40), "{size} {resident}");
    let (lines, size, resident) = line(MappingKind::File);
    assert!(lines[0].ends_with("program.c:13 (map)") && lines[1].contains("program.c:35 (main)"), "{lines:?}");
    assert!(size == 24 * MIB && close_to(resident, 24), "{size} {resident}");
}
