//! The driver's C functions, by group: a thin layer over one [`SimMachine`](crate::SimMachine) for the process.
//!
//! The build script finds them by `fn cu…` at the start of a line, and aliases by `| cu…`.

#[macro_use]
mod abi;
mod array;
mod array_tiles;
mod attributes;
mod call;
mod capture;
mod context;
mod copy;
mod device;
mod event;
mod exports;
mod external;
mod fill;
mod graph;
mod graph_memory;
mod init;
mod inspect;
mod ipc;
mod library;
mod lookup;
mod memory;
mod module;
mod pinned;
mod pointer;
mod pool;
mod pool_share;
mod process;
mod shareable;
mod stream;
mod stubs;
mod tensor_map;
mod thread;
mod virtual_memory;
