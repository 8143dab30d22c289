//! The heap of programs in C under the preloaded library: as the programs count it themselves.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use memtrace::analysis::Key;
use memtrace::{Device, DeviceView, open};
use memtrace_core::ReadOptions;
use memtrace_core::symbol::SymbolSources;
use support::{built, compile, preloaded};

/// Allocates at random, by every function there is, on as many threads as the first argument says; the second one is the seed.
/// Blocks of 16 KiB or more are counted: bytes that stay live, the most that were live at once, allocations and frees.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { SLOTS = 40, LARGE = 16384 };
static long live, most, allocations, frees;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void add(long size, int sign) {
    if (size < LARGE) return;
    pthread_mutex_lock(&lock);
    live += sign * size;
    if (live > most) most = live;
    if (sign > 0) allocations++; else frees++;
    pthread_mutex_unlock(&lock);
}
static void *new_block(unsigned kind, size_t size) {
    void *block = 0;
    switch (kind % 8) {
    case 0: block = malloc(size); break;
    case 1: block = calloc(size / 8, 8); break;
    case 2: posix_memalign(&block, 4096, size); break;
    case 3: block = aligned_alloc(64, size); break;
    case 4: block = memalign(32, size); break;
    case 5: block = valloc(size); break;
    case 6: block = realloc(0, size); break;
    case 7: block = reallocarray(0, size / 8, 8); break;
    }
    memset(block, 1, size);
    add(size, 1);
    return block;
}
static void *work(void *argument) {
    unsigned seed = (unsigned)(size_t)argument;
    struct { void *block; long size; } slots[SLOTS] = { 0 };
    for (int n = 0; n < 4000; n++) {
        int at = rand_r(&seed) % SLOTS;
        /* A third is small, and counted by nobody. */
        long size = rand_r(&seed) % 3 ? LARGE + rand_r(&seed) % 200000 / 64 * 64 : 64 + rand_r(&seed) % 120 * 64;
        if (!slots[at].block) {
            slots[at].block = new_block(rand_r(&seed), size);
        } else if (rand_r(&seed) % 8 == 0) {
            /* Refused, so the block stays as it is. */
            if (realloc(slots[at].block, PTRDIFF_MAX)) exit(6);
            continue;
        } else if (rand_r(&seed) % 3) {
            /* Reported as the library sees it: the free comes first. */
            add(slots[at].size, -1);
            slots[at].block = realloc(slots[at].block, size);
            add(size, 1);
        } else {
            add(slots[at].size, -1);
            free(slots[at].block);
            slots[at].block = 0;
            continue;
        }
        slots[at].size = size;
    }
    return 0;
}
int main(int count, char **arguments) {
    int threads = atoi(arguments[1]), seed = atoi(arguments[2]);
    pthread_t all[64];
    if (threads == 1) work((void *)(size_t)seed);
    else {
        for (int n = 0; n < threads; n++) pthread_create(&all[n], 0, work, (void *)(size_t)(seed * 100 + n));
        for (int n = 0; n < threads; n++) pthread_join(all[n], 0);
    }
    errno = 0;
    if (malloc((size_t)1 << 62) || errno != ENOMEM) return 3;
    void *none = 0;
    if (posix_memalign(&none, 3, 8) != EINVAL || none) return 4;
    free(0);
    errno = 7;
    free(malloc(LARGE));
    if (errno != 7) return 5;
    printf("%ld %ld %ld %ld\n", live, most, allocations + 1, frees + 1);
    return 0;
}
"#;

fn compiled(folder: &Path, source: &str) -> PathBuf {
    std::fs::write(folder.join("heap.c"), source).unwrap();
    compile(folder, "cc", "-w -g -O1 -fno-builtin -pthread -o heap heap.c");
    folder.join("heap")
}

/// Runs a program as `cargo memtrace run` does.
fn recorded(folder: &Path, program: &Path, arguments: &[&str]) -> Output {
    recorded_by(&built("libmemtrace_preload.so"), folder, program, arguments)
}

fn recorded_by(library: &Path, folder: &Path, program: &Path, arguments: &[&str]) -> Output {
    let mut command = preloaded(folder, &[library], program);
    command.args(arguments);
    support::recorded(command)
}

#[test]
fn c_programs_have_the_bytes_and_the_peak_that_they_count() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), PROGRAM);
    let rounds = std::env::var("MEMTRACE_CASES").map_or(2, |cases| cases.parse().unwrap());
    for (threads, seed) in (1..=rounds).flat_map(|seed| [1, 2, 5, 64].map(|threads| (threads, seed))) {
        let output = recorded(folder.path(), &program, &[&format!("{threads}"), &format!("{seed}")]);
        let case = format!("{threads} threads, seed {seed}: {output:?}");
        assert!(output.status.success() && output.stderr.is_empty(), "{case}");
        let counted: Vec<u64> =
            str::from_utf8(&output.stdout).unwrap().split_whitespace().map(|n| n.parse().unwrap()).collect();
        let file = folder.path().join("heap.memtrace");
        let data = open(&file).unwrap();
        std::fs::remove_file(file).unwrap();
        let cpu = data.device(Device::Cpu).unwrap();
        let live: u64 = cpu.live.iter().map(|block| block.size).sum();
        let blocks = cpu.stats.allocations;
        assert_eq!([live, blocks.allocated, blocks.freed], [counted[0], counted[2], counted[3]], "{case}");
        if threads == 1 {
            assert_eq!(cpu.peak.bytes, counted[1], "{case}");
        }
        let report = DeviceView::of(&data, cpu).by(Key::Line).clone();
        assert!(report.rows.iter().any(|row| row.label.ends_with("(new_block)")), "{:?}", report.rows);
    }
}

#[test]
fn a_library_without_names_is_not_taken_for_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let (program, library) = (compiled(folder.path(), PROGRAM), folder.path().join("libmemtrace_preload.so"));
    std::fs::copy(built("libmemtrace_preload.so"), &library).unwrap();
    assert!(Command::new("strip").arg(&library).status().unwrap().success());
    assert!(recorded_by(&library, folder.path(), &program, &["1", "1"]).status.success());
    let data = open(folder.path().join("heap.memtrace")).unwrap();
    let cpu = data.device(Device::Cpu).unwrap();
    let attribution = memtrace::attribute::Attribution::new(&data);
    let libraries = cpu.peak.blocks.iter().filter_map(|block| memtrace::attribute::library(&attribution, block.stack));
    assert_eq!(libraries.collect::<Vec<_>>(), Vec::<&str>::new());
    let rows = DeviceView::of(&data, cpu).by(Key::Line).rows.clone();
    assert!(rows.iter().any(|row| row.label.ends_with("(new_block)")), "{rows:?}");
}

/// A stripped program, and a stripped library with its debug information below a folder.
const STRIPPED: &str = r#"
cc -g -O1 -shared -fPIC -Wl,--build-id=0xabcdef01 -o libgrow.so grow.c
cc -g -O1 -Wl,--build-id=0x12345678 -o app app.c ./libgrow.so
mkdir -p debug/.build-id/ab
objcopy --only-keep-debug libgrow.so debug/.build-id/ab/cdef01.debug
objcopy --only-keep-debug app app.debug
strip libgrow.so app
objcopy --add-gnu-debuglink=app.debug app
"#;

#[test]
fn stripped_programs_and_libraries_have_lines_from_their_separate_debug_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let grow = "#include <stdlib.h>\nchar *grow(void) {\n  return 1 + (char *)malloc(70000);\n}\n";
    let app = "#include <stdlib.h>\nchar *grow(void);\nint main(void) {\n  return malloc(50000) == grow();\n}\n";
    std::fs::write(at("grow.c"), grow).unwrap();
    std::fs::write(at("app.c"), app).unwrap();
    assert!(Command::new("sh").args(["-ec", STRIPPED]).current_dir(folder.path()).status().unwrap().success());
    assert!(recorded(folder.path(), &at("app"), &[]).status.success());
    let lines = |debug: &str| {
        let sources = SymbolSources { debug_dirs: vec![at(debug)], ..SymbolSources::default() };
        let data = ReadOptions::default().sources(sources).open(at("heap.memtrace")).unwrap();
        let rows = DeviceView::of(&data, data.device(Device::Cpu).unwrap()).by(Key::Line).rows.clone();
        rows.into_iter().map(|row| (row.label, row.bytes)).collect::<Vec<_>>()
    };
    let found = lines("debug");
    assert!(found.contains(&("grow.c:3 (grow)".to_owned(), 70000)), "{found:?}");
    assert!(found.contains(&("app.c:4 (main)".to_owned(), 50000)), "{found:?}");
    let without = lines("none");
    assert!(without.iter().all(|(label, _)| !label.contains("grow.c")), "{without:?}");
}

/// Its lines are in C, and the program's are not.
#[test]
fn an_interpreters_own_lines_are_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let interpreter = folder.path().join("python3.11");
    std::fs::rename(compiled(folder.path(), PROGRAM), &interpreter).unwrap();
    assert!(recorded(folder.path(), &interpreter, &["1", "1"]).status.success());
    let data = open(folder.path().join("heap.memtrace")).unwrap();
    let rows = DeviceView::of(&data, data.device(Device::Cpu).unwrap()).by(Key::Line).rows.clone();
    assert!(rows.iter().any(|row| row.label == "(python3.11)" && row.bytes > 0), "{rows:?}");
    assert!(rows.iter().all(|row| row.label.starts_with('(')), "{rows:?}");
}

#[test]
fn a_shell_and_what_it_starts_behave_as_without_us() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo one | cat; (exit 3); echo $?; ulimit -n; printf '%s\\n' \"$(ls / | wc -l)\"; exit 5";
    let alone = Command::new("/bin/sh").args(["-c", script]).output().unwrap();
    let output = recorded(folder.path(), Path::new("/bin/sh"), &["-c", script]);
    assert_eq!((output.status, output.stdout, output.stderr), (alone.status, alone.stdout, alone.stderr));
}

#[test]
fn every_process_is_recorded_where_all_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), PROGRAM);
    let mut shell = Command::new("/bin/sh");
    let script = "\"$0\" 1 1; \"$0\" 1 2 | cat; exit 4";
    shell
        .args(["-c", script])
        .arg(&program)
        .current_dir(folder.path())
        .env("LD_PRELOAD", built("libmemtrace_preload.so"));
    shell.env("MEMTRACE_RUN", "all").env("MEMTRACE_OUT", "%e-%p.memtrace").env("MEMTRACE_MIN_SIZE", "16KiB");
    let output = shell.output().unwrap();
    assert!(output.status.code() == Some(4) && output.stderr.is_empty(), "{output:?}");
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let recorded = files.filter(|name| name.ends_with(".memtrace"));
    let mut programs: Vec<String> = recorded.map(|name| name.split_once('-').unwrap().0.to_owned()).collect();
    programs.sort();
    let own = program.file_name().unwrap().to_str().unwrap();
    let programs: Vec<&str> = programs.iter().map(|name| if name == own { "own" } else { name }).collect();
    // The shell has the name of the file behind the link, and a subshell that executes nothing records nothing of its own.
    assert_eq!(programs.iter().filter(|name| **name == "own").count(), 2, "{programs:?}");
    assert_eq!(programs.iter().filter(|name| **name == "cat").count(), 1, "{programs:?}");
    assert_eq!(programs.len(), 4, "{programs:?}");
}

#[test]
fn a_program_with_a_malloc_of_its_own_runs_and_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
#include <stdio.h>
#include <stddef.h>
static char room[1 << 24];
static size_t used;
void *malloc(size_t size) { void *block = room + used; used += (size + 15) / 16 * 16 + 16; return block; }
void free(void *block) {}
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *block, size_t size) { void *other = malloc(size); if (block) for (size_t n = 0; n < size; n++) ((char *)other)[n] = ((char *)block)[n]; return other; }
int main(void) { volatile char *block = malloc(100000); block[0] = 1; puts("fine"); return 0; }
"#;
    let program = compiled(folder.path(), source);
    let output = recorded(folder.path(), &program, &[]);
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"fine\n"[..]), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("memtrace: the heap is not recorded: ") && said.lines().count() == 1, "{said}");
    assert!(!folder.path().join("heap.memtrace").exists());
}
