//! What programs do to their processes, under the preloaded library: children and credentials.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]

mod support;

use std::fs::File;
use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};

use memtrace::{Device, open};
use support::{built, compile, preloaded, recorded};

/// A folder with a program in C.
fn folder_with(source: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("app.c"), source).unwrap();
    compile(folder.path(), "cc", "-w -O1 -fno-builtin -pthread -o app app.c");
    folder
}

/// Runs the program under the library.
fn run(folder: &tempfile::TempDir, argument: &str) -> Output {
    let mut command = preloaded(folder.path(), &[&built("libmemtrace_preload.so")], "./app");
    command.arg(argument);
    recorded(command)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Children without fork handlers (0: `clone`, 1: `_Fork`, 2: `fork`) use their copies of the heap, and so do children
/// that they fork.
const CHILDREN: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
pid_t _Fork(void);
static pid_t waited_for;
static void late(int signal) { kill(waited_for, SIGKILL); }
static void deadline(pid_t child) { waited_for = child; signal(SIGALRM, late); alarm(10); }
int main(int count, char **arguments) {
    int ended;
    if (strchr(arguments[1], 'f') && fork()) return wait(&ended) < 0 || ended;
    void *kept[200];
    for (int n = 0; n < 200; n++) kept[n] = malloc(20000);
    for (int round = 0; round < 500; round++) {
        for (int n = 0; n < 200; n++) { free(kept[n]); kept[n] = malloc(20000 + n); }
        int how = atoi(arguments[1]);
        pid_t child = how == 0 ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : how == 1 ? _Fork() : fork();
        if (!child) {
            pid_t grandchild = round % 10 ? -1 : fork();
            for (int n = 0; n < 50; n++) { free(malloc(30000)); free(kept[n]); }
            if (!grandchild) exit(0);
            if (grandchild > 0) waitpid(grandchild, 0, 0);
            if (round % 2) _exit(7); else exit(7);
        }
        int status = 0;
        deadline(child);
        if (waitpid(child, &status, 0) != child || status != 7 << 8) return 1;
    }
    write(1, "done\n", 5);
    return 0;
}
"#;

#[test]
fn children_without_fork_handlers_wait_for_nothing() {
    let folder = folder_with(CHILDREN);
    for how in ["0", "1", "2", "0 of a fork", "1 of a fork"] {
        let output = run(&folder, how);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "done\n".to_owned()), "{how} {output:?}");
    }
}

/// Prints how many arenas glibc's allocator has: one for each thread that has used it.
const ARENAS: &str = r#"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
int main() {
    struct timespec pause = {0, 1000000};
    for (int round = 0; round < 500; round++) { free(malloc(20000)); nanosleep(&pause, 0); }
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    malloc_info(0, to);
    fclose(to);
    int arenas = 0;
    for (char *at = text; (at = strstr(at, "<heap nr=")); at++) arenas++;
    printf("%d\n", arenas);
}
"#;

/// A child made without fork handlers would wait for a lock of the allocator that one of memtrace's threads held.
#[test]
fn our_threads_never_use_the_programs_allocator() {
    let folder = folder_with(ARENAS);
    let alone = preloaded(folder.path(), &[], "./app").output().unwrap();
    assert_eq!((text(&run(&folder, "").stdout), text(&alone.stdout)), ("1\n".to_owned(), "1\n".to_owned()));
    assert!(
        open(folder.path().join("heap.memtrace")).unwrap().device(Device::Cpu).unwrap().stats.allocations.allocated
            >= 500
    );
}

/// Restricts itself in one way, uses the heap and makes calls that tell of other threads.
const RESTRICTED: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
static struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(write), ALLOW(exit), ALLOW(exit_group), ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(futex),
    ALLOW(madvise), ALLOW(mprotect), ALLOW(rt_sigreturn),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};
static struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
int main(int count, char **arguments) {
    char line[100];
    int how = atoi(arguments[1]), outcome = 0;
    free(malloc(100000));
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    switch (how) {
    case 0: outcome = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program); break;
    case 1: outcome = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program); break;
    case 2: outcome = prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT); break;
    case 3: outcome = unshare(CLONE_NEWUSER); break;
    case 4: outcome = syscall(SYS_unshare, CLONE_NEWUSER); break;
    /* What only this thread keeps decides whether the next call succeeds. */
    case 5: prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0); setresuid(65534, 65534, 65534); outcome = setgroups(0, 0); break;
    case 6: outcome = syscall(SYS_setresuid, 65534, 65534, 65534); outcome += 10 * setgroups(0, 0); break;
    case 7: outcome = unshare(CLONE_FS | CLONE_FILES); break;
    }
    static void *kept[200];
    for (int n = 0; how != 2 && n < 20000; n++) { free(kept[n % 200]); kept[n % 200] = malloc(1000 + n * 10); }
    write(1, line, sprintf(line, "%d %d\n", outcome, outcome ? errno : 0));
    if (how == 2) syscall(SYS_exit, 5);
    exit(5);
}
"#;

/// The recording ends before the restriction; until then it is right.
#[test]
fn programs_that_restrict_themselves_behave_as_without_us() {
    let folder = folder_with(RESTRICTED);
    for how in ["0", "1", "2", "3", "4", "5", "6", "7"] {
        let alone = preloaded(folder.path(), &[], "./app").arg(how).output().unwrap();
        let output = run(&folder, how);
        let outcome = |output: &Output| (output.status, text(&output.stdout));
        assert_eq!(outcome(&output), outcome(&alone), "{how}");
        let is_said = text(&output.stderr).contains("the recording ends here");
        assert_eq!(is_said, how != "7", "{how} {output:?}");
        let file = folder.path().join("heap.memtrace");
        let allocations = open(&file).unwrap().device(Device::Cpu).unwrap().stats.allocations.allocated;
        std::fs::remove_file(file).unwrap();
        assert!(if is_said { allocations == 1 } else { allocations > 15_000 }, "{how} {allocations}");
    }
}

/// Runs the restricted program, and one whose recording cannot begin; what they print, and how they end.
fn with_messages_to(
    folder: &tempfile::TempDir,
    library: bool,
    errors: impl Fn() -> Stdio,
) -> Vec<(ExitStatus, String)> {
    let cases = [("0", "heap.memtrace"), ("3", "heap.memtrace"), ("7", "app.c/none.memtrace"), ("7", "heap.unknown")];
    let run = |(how, out): (&str, &str)| {
        let ours = library.then(|| built("libmemtrace_preload.so"));
        let ours: Vec<&Path> = ours.iter().map(|ours| &**ours).collect();
        let mut command = preloaded(folder.path(), &ours, "./app");
        command.env("MEMTRACE_RUN", std::process::id().to_string()).env("MEMTRACE_OUT", out).arg(how);
        let output = command.stderr(errors()).output().unwrap();
        (output.status, text(&output.stdout))
    };
    cases.into_iter().map(run).collect()
}

#[test]
fn messages_that_nobody_can_read_change_no_program() {
    let folder = folder_with(RESTRICTED);
    let alone = with_messages_to(&folder, false, Stdio::piped);
    assert!(alone.iter().all(|(status, _)| status.code() == Some(5)), "{alone:?}");
    let full = || File::options().write(true).open("/dev/full").unwrap().into();
    // Its reader is gone, so a write to it is also a signal.
    let closed = || std::io::pipe().unwrap().1.into();
    assert_eq!(with_messages_to(&folder, true, Stdio::piped), alone);
    assert_eq!(with_messages_to(&folder, true, full), alone, "a full one");
    assert_eq!(with_messages_to(&folder, true, closed), alone, "a closed one");
}

/// Restricts itself, and begins to use a GPU only afterwards.
const RESTRICTED_BEFORE_CUDA: &str = r#"
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/prctl.h>
int main() {
    int (*init)(unsigned) = dlsym(dlopen("./libcuda.so.1", RTLD_NOW), "cuInit");
    free(malloc(100000));
    prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
    return init(0);
}
"#;

#[test]
fn a_recording_that_has_ended_for_good_does_not_begin_again() {
    let folder = folder_with(RESTRICTED_BEFORE_CUDA);
    std::fs::write(folder.path().join("cuda.c"), "int cuInit(unsigned flags) { return flags; }").unwrap();
    compile(folder.path(), "cc", "-shared -fPIC -Wl,-soname,libcuda.so.1 -o libcuda.so.1 cuda.c");
    let output = run(&folder, "");
    assert!(output.status.success(), "{output:?}");
    let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let recordings: Vec<_> = names.filter(|name| name.to_string_lossy().ends_with(".memtrace")).collect();
    assert_eq!(recordings, ["heap.memtrace"]);
}
