//! Processes: what they do before `main`, how their threads and they themselves end, what they fork, and what
//! memtrace takes for itself meanwhile. Each test runs in a process of its own.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "fork, kill and atexit are C functions; a constructor runs from .init_array")]

#[path = "../support/child.rs"]
mod child;
mod children;
mod environment;
mod exits;
mod foreign_locks;
mod forked;
mod limits;
mod main_thread;
mod own_memory;
mod panics;
mod places;
mod privileges;
mod process;
mod stack_use;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod thread_names;
mod training;
mod unloading;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
