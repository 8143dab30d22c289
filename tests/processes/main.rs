//! Recordings around `main`, ends of threads and processes, forks, and memtrace's own memory. Each test runs in its own
//! process.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "fork, kill and atexit are C functions; a constructor runs from .init_array")]

#[path = "../support/child.rs"]
mod child;
mod children;
mod environment;
mod exits;
mod foreign_locks;
mod forked;
#[cfg(target_env = "gnu")]
#[path = "../support/full_disk.rs"]
mod full_disk;
#[cfg(target_env = "gnu")]
mod full_disk_at_end;
mod limits;
mod main_thread;
mod nvtx;
mod own_memory;
mod panics;
mod places;
mod privileges;
mod process;
mod stack_use;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod system_calls;
mod thread_names;
mod training;
mod unloading;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
