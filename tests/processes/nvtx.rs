//! Scopes as ranges of NVTX: with a tool in C, and with files that are none.

use std::path::{Path, PathBuf};
use std::process::Command;

use memtrace::{open, scope};
use tracing_subscriber::layer::SubscriberExt;

use crate::child::{Ended, command, ended, if_child};
use crate::training::{OUT, out};

/// A tool that prints the ranges, and allocates.
const TOOL: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    struct callbacks { size_t size; int (*slots)(int, void ****, unsigned *); };
    static int push(const char *message) { printf("push %s\n", message); fflush(stdout); return malloc(99) == 0; }
    static int pop(void) { puts("pop"); fflush(stdout); return 0; }
    int InitializeInjectionNvtx2(const void *(*table)(unsigned)) {
        const struct callbacks *callbacks = table(1);
        void ***slots;
        unsigned count;
        if (callbacks->size < sizeof *callbacks || !callbacks->slots(1, &slots, &count) || count != 16 || slots[0]) return 0;
        *slots[9] = (void *)push;
        *slots[11] = (void *)pop;
        return 1;
    }
"#;

/// Its first function fails.
const REFUSES: &str = "int InitializeInjectionNvtx2(void *table) { return 0; }";

fn library(folder: &Path, code: &str) -> PathBuf {
    let (source, library) = (folder.join("tool.c"), folder.join("libtool.so"));
    std::fs::write(&source, code).unwrap();
    let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compile.args(["-shared", "-fPIC", "-o"]).args([&library, &source]);
    assert!(compile.status().unwrap().success());
    library
}

fn works() {
    let subscriber = tracing_subscriber::registry().with(memtrace::layer());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let session = memtrace::start().unwrap();
    let tensor =
        scope("forward", || tracing::info_span!("layer").in_scope(|| std::hint::black_box(vec![1u8; 1 << 20])));
    std::thread::spawn(|| scope("loader", || ())).join().unwrap();
    session.snapshot().write(out()).unwrap();
    drop(tensor);
}

fn with_tool(folder: &Path, tool: &Path) -> Ended {
    let capture = folder.join("nvtx.memtrace");
    let child = ended(command(&[(OUT, capture.to_str().unwrap())]).env("NVTX_INJECTION64_PATH", tool)).well();
    let snapshot = open(&capture).unwrap();
    std::fs::remove_file(capture).unwrap();
    let device = snapshot.device(memtrace::Device::Cpu).unwrap();
    let block = device.live.iter().find(|block| block.size == 1 << 20).unwrap();
    assert_eq!(snapshot.context_path(block.context), "forward > layer");
    child
}

#[test]
fn a_tool_hears_of_scopes_and_of_spans() {
    if_child(works);
    let folder = tempfile::tempdir().unwrap();
    let tool = library(folder.path(), TOOL);
    let heard = with_tool(folder.path(), &tool).out;
    let heard: Vec<&str> = heard.lines().filter(|line| line.starts_with("p")).collect();
    assert_eq!(heard, ["push forward", "push layer", "pop", "pop", "push loader", "pop"]);
}

#[test]
fn a_file_that_is_no_tool_changes_nothing() {
    if_child(works);
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no library").unwrap();
    let refuses = library(folder.path(), REFUSES);
    for tool in [&refuses, &text, Path::new(""), Path::new("/nowhere/libtool.so"), Path::new("libm.so.6")] {
        let child = with_tool(folder.path(), tool);
        assert!(!child.said("push") && !child.said("NVTX"), "{child}");
    }
}
