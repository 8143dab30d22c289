//! Threads and signal handlers with little stack, under the preloaded library.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]

mod support;

use std::process::Output;

use memtrace::{Device, open};
use support::{built, compile, preloaded, recorded};

fn run(source: &str, arguments: &[&str]) -> (Output, u64) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("app.c"), source).unwrap();
    compile(folder.path(), "cc", "-w -O1 -fno-builtin -pthread -o app app.c");
    let mut command = preloaded(folder.path(), &[&built("libmemtrace_preload.so")], "./app");
    command.args(arguments);
    let output = recorded(command);
    let data = open(folder.path().join("heap.memtrace")).unwrap();
    (output, data.device(Device::Cpu).unwrap().stats.allocations.allocated)
}

/// Threads, one after another, with stacks of so many bytes, which allocate; prints by how much physical memory grew after the first tenth, in pages.
const THREADS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static void *work(void *argument) { free(realloc(malloc(20000), 30000)); return 0; }
static long resident(void) {
    long size, pages;
    FILE *file = fopen("/proc/self/statm", "r");
    fscanf(file, "%ld %ld", &size, &pages);
    fclose(file);
    return pages;
}
int main(int count, char **arguments) {
    size_t size = atol(arguments[1]);
    #ifdef __aarch64__
    // glibc's least there.
    if (size < 131072) size = 131072;
    #endif
    int threads = atoi(arguments[2]);
    long before = 0;
    char *memory = mmap(0, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory, 4096, PROT_NONE);
    for (int n = 0; n < threads; n++) {
        pthread_attr_t attributes;
        pthread_t thread;
        pthread_attr_init(&attributes);
        if (pthread_attr_setstack(&attributes, memory + 4096, size)) return 1;
        if (pthread_create(&thread, &attributes, work, 0)) return 2;
        if (pthread_join(thread, 0)) return 3;
        if (n == threads / 10) before = resident();
    }
    printf("%ld\n", resident() - before);
    return 0;
}
"#;

#[test]
fn threads_with_the_smallest_stack_run_and_are_recorded() {
    let (output, allocations) = run(THREADS, &["16384", "20"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(allocations, 40);
}

/// A thread's memory goes to the next thread.
#[test]
fn ten_thousand_threads_leave_nothing() {
    let (output, allocations) = run(THREADS, &["65536", "10000"]);
    assert!(output.status.success() && allocations == 20_000, "{output:?} {allocations}");
    let grown: i64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    // The log of 18,000 allocations and frees takes some of it; 9,000 times what a thread has would be 27,000 pages.
    assert!(grown < 3000, "{grown} pages");
}

/// Each thread of a program has room for these beside the program's own.
#[test]
fn thread_local_variables_take_little() {
    let output =
        std::process::Command::new("readelf").arg("-lW").arg(built("libmemtrace_preload.so")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.trim_start().starts_with("TLS")).unwrap();
    let size = line.split_whitespace().nth(5).unwrap().trim_start_matches("0x");
    let size = u64::from_str_radix(size, 16).unwrap();
    assert!(size <= 1024, "{size}: {line}");
}

/// The first allocation is in a handler, on a signal stack with a guard page below.
const HANDLER: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static void handle(int signal) { free(malloc(20000)); }
int main(int count, char **arguments) {
    size_t size = atol(arguments[1]);
    char *memory = mmap(0, size + 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory, 65536, PROT_NONE);
    stack_t stack = { .ss_sp = memory + 65536, .ss_size = size };
    struct sigaction action = { .sa_handler = handle, .sa_flags = SA_ONSTACK };
    if (sigaltstack(&stack, 0) || sigaction(SIGUSR1, &action, 0)) return 1;
    for (int n = 0; n < 100; n++) raise(SIGUSR1);
    return 0;
}
"#;

#[test]
fn a_handler_on_a_small_signal_stack_may_allocate() {
    // An optimised library uses 6 KiB, nearly half of which is the kernel's own record. On aarch64 the record has 4.6 KiB,
    // and a stack is at least 16 KiB by <signal.h>.
    let size = if cfg!(target_arch = "aarch64") {
        "16384"
    } else if cfg!(debug_assertions) {
        "9216"
    } else {
        "8192"
    };
    let (output, allocations) = run(HANDLER, &[size]);
    assert!(output.status.success() && allocations == 100, "{output:?} {allocations}");
}
