//! Other allocators and checkers behind the preloaded library: they work as without it.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]

mod support;

use std::path::Path;
use std::process::{Command, Output};

use memtrace::{Device, open};
use support::{built, compile, preloaded, recorded};

/// Compiles `counter.c` and the random programs: in C, C++ and Rust.
fn compile_all(folder: &Path) -> [&'static str; 3] {
    let source = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support").join(name);
    let (c, rust) = (source("random.c"), source("random.rs"));
    for library in ["counter", "ticks"] {
        let from = source(library).with_extension("c");
        compile(folder, "cc", &format!("-w -O1 -fno-builtin -shared -fPIC -o lib{library}.so {}", from.display()));
    }
    compile(folder, "cc", &format!("-w -O1 -fno-builtin -pthread -o in_c {}", c.display()));
    compile(folder, "c++", &format!("-w -O1 -fno-builtin -pthread -x c++ -o in_c++ {}", c.display()));
    compile(folder, "rustc", &format!("--edition 2024 -Copt-level=1 -o in_rust {}", rust.display()));
    ["in_c", "in_c++", "in_rust"]
}

/// What `counter.c`, which shares no code with the recorder, counted in the same process: live bytes, peak, allocations. With other
/// libraries behind it.
fn counted_and_recorded(folder: &Path, program: &str, threads: u64, seed: u64, others: &[&Path]) -> [[u64; 3]; 2] {
    let (ours, counter) = (built("libmemtrace_preload.so"), folder.join("libcounter.so"));
    let mut command = preloaded(folder, &[&[&*ours, &*counter], others].concat(), folder.join(program));
    command
        .env("COUNTED", "counted")
        .env("TICKED", folder.join("ticked"))
        .args([threads.to_string(), seed.to_string()]);
    let output = recorded(command);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let counted = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let counted = counted.into_iter().find(|file| file.to_string_lossy().contains("counted.")).unwrap();
    let numbers = std::fs::read_to_string(&counted).unwrap();
    std::fs::remove_file(counted).unwrap();
    let counted: Vec<u64> = numbers.split_whitespace().take(3).map(|number| number.parse().unwrap()).collect();
    let file = folder.join("heap.memtrace");
    let data = open(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    let cpu = data.device(Device::Cpu).unwrap();
    let recorded = [cpu.stats.allocated_bytes.current, cpu.peak.bytes, cpu.stats.allocations.allocated];
    [counted.try_into().unwrap(), recorded]
}

/// `MEMTRACE_CASES` is the number of programs in each language.
#[test]
fn random_programs_have_what_another_allocator_below_counts() {
    let folder = tempfile::tempdir().unwrap();
    let programs = compile_all(folder.path());
    let cases: u64 = std::env::var("MEMTRACE_CASES").map_or(2, |cases| cases.parse().unwrap());
    for (seed, program) in (1..=cases).flat_map(|seed| programs.map(|program| (seed, program))) {
        let threads = [1, 2, 7, 65][seed as usize % 4];
        let [counted, recorded] = counted_and_recorded(folder.path(), program, threads, seed, &[]);
        assert_eq!(recorded, counted, "{program} {threads} {seed}");
    }
}

/// The same, while signals interrupt each thread ten thousand times a second.
#[test]
fn random_programs_under_signals_have_what_another_allocator_below_counts() {
    let folder = tempfile::tempdir().unwrap();
    let programs = compile_all(folder.path());
    let cases: u64 = std::env::var("MEMTRACE_CASES").map_or(3, |cases| cases.parse().unwrap());
    let mut ticks: Vec<u64> = Vec::new();
    for (seed, program) in (1..=cases).flat_map(|seed| programs.map(|program| (seed, program))) {
        let (threads, library) = ([1, 2, 7][seed as usize % 3], folder.path().join("libticks.so"));
        let [counted, recorded] = counted_and_recorded(folder.path(), program, threads, seed, &[&library]);
        assert_eq!(recorded, counted, "{program} {threads} {seed}");
        ticks.push(std::fs::read_to_string(folder.path().join("ticked")).unwrap().parse().unwrap());
    }
    eprintln!("{} programs, {} signals", ticks.len(), ticks.iter().sum::<u64>());
    assert!(ticks.iter().all(|ticks| *ticks > 10), "{ticks:?}");
}

/// A program that fails if a function gets a block of another allocator.
const PROGRAM: &str = r#"
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    if (errno) return errno;
    for (int n = 1; n < 1000; n++) {
        char *block = malloc(n * 50);
        if (malloc_usable_size(block) < n * 50) return 1;
        block = realloc(block, n * 60);
        block[0] = 1;
        free(block);
    }
#ifdef SANITIZED
    return 4;
#endif
    void *aligned = NULL;
    printf("%d %d\n", posix_memalign(&aligned, 3, 8), aligned_alloc(3, 8) == NULL);
    return 4;
}
"#;

/// Each block has its size, and a mark, in front of it. memtrace allocates here on a thread of its own, too.
const ALLOCATOR: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <errno.h>
static char room[1 << 30] __attribute__((aligned(64)));
static size_t used;
void *memalign(size_t alignment, size_t size) {
    static char is_locked;
    while (__atomic_test_and_set(&is_locked, __ATOMIC_ACQUIRE));
    used = (used + 16 + alignment - 1) / alignment * alignment;
    size_t *block = (size_t *)(room + used);
    used += size + 16;
    if (used > sizeof room) abort();
    __atomic_clear(&is_locked, __ATOMIC_RELEASE);
    block[-1] = size; block[-2] = 0x51AB;
    return block;
}
static size_t checked(void *block) { if (((size_t *)block)[-2] != 0x51AB) abort(); return ((size_t *)block)[-1]; }
void *malloc(size_t size) { return memalign(16, size); }
void *valloc(size_t size) { return memalign(4096, size); }
void *pvalloc(size_t size) { return memalign(4096, size); }
void *aligned_alloc(size_t alignment, size_t size) { return alignment & (alignment - 1) ? (errno = EINVAL, (void *)0) : memalign(alignment, size); }
int posix_memalign(void **to, size_t alignment, size_t size) { if (alignment & (alignment - 1)) return EINVAL; *to = memalign(alignment, size); return 0; }
size_t malloc_usable_size(void *block) { return block ? checked(block) : 0; }
void free(void *block) { if (block) checked(block); }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *block, size_t size) {
    size_t old = block ? checked(block) : 0;
    void *other = malloc(size);
    return memcpy(other, block, old < size ? old : size);
}
#ifdef WITH_OPERATORS
void *_Znwm(size_t size) { return malloc(size); }
#endif
"#;

/// What the program did, and what was said.
fn outcome(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
    folder
}

#[test]
fn each_function_of_another_allocator_gets_its_own_blocks() {
    let folder = folder_with(&[("app.c", PROGRAM), ("allocator.c", ALLOCATOR)]);
    compile(folder.path(), "cc", "-w -shared -fPIC -fno-builtin -o libone.so allocator.c");
    compile(folder.path(), "cc", "-w -shared -fPIC -fno-builtin -DWITH_OPERATORS -o libother.so allocator.c");
    compile(folder.path(), "cc", "-w -fno-builtin -o plain app.c");
    for library in ["one", "other"] {
        compile(folder.path(), "cc", &format!("-w -fno-builtin -o linked app.c -Wl,--no-as-needed ./lib{library}.so"));
        let ours = built("libmemtrace_preload.so");
        let file = folder.path().join(format!("lib{library}.so"));
        let alone = preloaded(folder.path(), &[&file], "./plain").output().unwrap();
        assert_eq!(outcome(&alone), (Some(4), "22 1\n".to_owned(), String::new()));
        for (program, libraries) in [("./linked", vec![&*ours]), ("./plain", vec![&ours, &file])] {
            let (code, out, said) = outcome(&recorded(preloaded(folder.path(), &libraries, program)));
            assert_eq!((code, &*out), (Some(4), "22 1\n"), "{library} {program} {said}");
            // Operators of C++ would allocate past what is recorded.
            let recording = folder.path().join("heap.memtrace");
            let expected = if library == "one" { "" } else { "has an allocator in C's place" };
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{said}");
            assert_eq!(std::fs::remove_file(recording).is_ok(), expected.is_empty(), "{library} {program}");
        }
    }
}

/// As Debian's python3 has it: linked at a fixed address, so that `malloc`'s is that of a stub in the program.
#[test]
fn a_stub_of_malloc_in_a_program_is_no_allocator() {
    let text = "#include <stdlib.h>\nint main(void) { void *(*volatile allocate)(size_t) = malloc; return !allocate(30000); }\n";
    let folder = folder_with(&[("app.c", text)]);
    compile(folder.path(), "cc", "-w -no-pie -fno-pie -fno-builtin -o app app.c");
    let (code, _, said) = outcome(&recorded(preloaded(folder.path(), &[&built("libmemtrace_preload.so")], "./app")));
    assert!(code == Some(0) && said.is_empty(), "{code:?} {said}");
    let data = open(folder.path().join("heap.memtrace")).unwrap();
    assert_eq!(data.device(Device::Cpu).unwrap().stats.allocated_bytes.current, 30000);
}

#[test]
fn nothing_is_done_in_a_program_with_a_sanitizer() {
    let folder = folder_with(&[("app.c", PROGRAM)]);
    for sanitizer in ["thread", "leak"] {
        compile(folder.path(), "cc", &format!("-w -DSANITIZED -fsanitize={sanitizer} -o app app.c"));
        let alone = Command::new(folder.path().join("app")).output().unwrap();
        let output = recorded(preloaded(folder.path(), &[&built("libmemtrace_preload.so")], "./app"));
        assert_eq!(outcome(&output), outcome(&alone), "{sanitizer}");
        assert_eq!(alone.status.code(), Some(4));
    }
}

#[test]
fn a_program_under_audit_runs_and_that_it_is_not_recorded_is_said() {
    let folder = folder_with(&[("app.c", PROGRAM), ("audit.c", "unsigned la_version(unsigned v) { return v; }")]);
    compile(folder.path(), "cc", "-w -shared -fPIC -o libaudit.so audit.c");
    compile(folder.path(), "cc", "-w -fno-builtin -o app app.c");
    let mut command = preloaded(folder.path(), &[&built("libmemtrace_preload.so")], "./app");
    command.env("LD_AUDIT", folder.path().join("libaudit.so"));
    let (code, _, said) = outcome(&recorded(command));
    assert!(code == Some(4) && said.contains("not recorded: LD_AUDIT is set"), "{code:?} {said}");
}
