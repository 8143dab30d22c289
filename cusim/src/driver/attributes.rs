//! Device attributes: values of a GPU of the Hopper generation, in the order of `CUdevice_attribute`.

use crate::Config;
use crate::machine::{MULTIPROCESSORS, THREADS_OF_EACH};

/// An attribute's value; 0 for those that are not simulated.
pub(super) fn attribute(config: &Config, device: usize, number: i32) -> i32 {
    match number {
        MAJOR => config.capability.0,
        MINOR => config.capability.1,
        POOLS_SUPPORTED => i32::from(config.pools),
        INTEGRATED => i32::from(config.integrated),
        PCI_BUS => device as i32 + 1,
        _ => FIXED.iter().find(|(known, _)| *known == number).map_or(0, |(_, value)| *value),
    }
}

const INTEGRATED: i32 = 18;
const PCI_BUS: i32 = 33;
const MAJOR: i32 = 75;
const MINOR: i32 = 76;
const POOLS_SUPPORTED: i32 = 115;

const FIXED: [(i32, i32); 43] = [
    (1, 1024),       // threads a block
    (2, 1024),       // block x
    (3, 1024),       // block y
    (4, 64),         // block z
    (5, i32::MAX),   // grid x
    (6, 65_535),     // grid y
    (7, 65_535),     // grid z
    (8, 48 << 10),   // shared memory a block
    (9, 64 << 10),   // constant memory
    (10, 32),        // warp
    (11, i32::MAX),  // pitch
    (12, 64 << 10),  // registers a block
    (13, 1_980_000), // clock, kHz
    (14, 512),       // texture alignment
    (16, MULTIPROCESSORS),
    (19, 1),         // maps host memory
    (31, 1),         // concurrent kernels
    (32, 1),         // ECC
    (36, 2_619_000), // memory clock, kHz
    (37, 5120),      // memory bus, bits
    (38, 50 << 20),  // L2 cache
    (39, THREADS_OF_EACH),
    (40, 3),          // copy engines
    (41, 1),          // unified addresses
    (51, 512),        // texture pitch alignment
    (78, 1),          // stream priorities
    (79, 1),          // global L1 cache
    (80, 1),          // local L1 cache
    (81, 228 << 10),  // shared memory a multiprocessor
    (82, 64 << 10),   // registers a multiprocessor
    (83, 1),          // managed memory
    (89, 1),          // concurrent managed access
    (90, 1),          // compute preemption
    (95, 1),          // cooperative launch
    (97, 227 << 10),  // shared memory a block, opted in
    (99, 1),          // host register
    (102, 1),         // virtual memory
    (103, 1),         // its handles as files
    (106, 32),        // blocks a multiprocessor
    (108, 32 << 20),  // persisting L2 cache
    (109, 128 << 20), // access policy window
    (111, 1024),      // reserved shared memory a block
    (119, 1),         // pools as files
];
