//! What programs do to their processes, under the preloaded library: children and credentials.

#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

mod support;

use support::{built, compile, preloaded, recorded};

/// Runs a program in C under the library, with its argument, and returns its exit code and what it printed.
fn run(source: &str, argument: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("app.c"), source).unwrap();
    compile(folder.path(), "cc", "-w -O1 -fno-builtin -pthread -o app app.c");
    let mut command = preloaded(folder.path(), &[&built("libmemtrace_preload.so")], "./app");
    command.arg(argument);
    let output = recorded(command);
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Children without fork handlers (0: `clone`, 1: `_Fork`, 2: `fork`) use their copies of the heap.
const CHILDREN: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
pid_t _Fork(void);
static pid_t waited_for;
static void late(int signal) { kill(waited_for, SIGKILL); }
static void deadline(pid_t child) { waited_for = child; signal(SIGALRM, late); alarm(10); }
int main(int count, char **arguments) {
    void *kept[200];
    for (int n = 0; n < 200; n++) kept[n] = malloc(20000);
    for (int round = 0; round < 500; round++) {
        for (int n = 0; n < 200; n++) { free(kept[n]); kept[n] = malloc(20000 + n); }
        int how = atoi(arguments[1]);
        pid_t child = how == 0 ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : how == 1 ? _Fork() : fork();
        if (!child) {
            for (int n = 0; n < 50; n++) { free(malloc(30000)); free(kept[n]); }
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
    for how in ["0", "1", "2"] {
        assert_eq!(run(CHILDREN, how), (Some(0), "done\n".to_owned()), "{how}");
    }
}
