//! CUDA graphs with nodes that allocate and free, through the built library.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "a driver is called through C")]

#[path = "support/records.rs"]
mod records;
mod support;

use memtrace_cusim::code::{INVALID_VALUE, OUT_OF_MEMORY};
use memtrace_cusim::history::{BlockKind, Op};
use records::records;
use support::{Driver, in_child};

const MIB: usize = 1 << 20;
const AUTO_FREE: u64 = 1;

/// Used and reserved bytes of the device's memory for graphs.
fn of_graphs(driver: Driver) -> (u64, u64) {
    let (mut used, mut reserved) = (9, 9);
    assert_eq!((driver.graph_attribute(0, 0, &mut used), driver.graph_attribute(0, 2, &mut reserved)), (0, 0));
    let read = |name| {
        // SAFETY: the function has this type.
        let read = unsafe { std::mem::transmute::<usize, extern "C" fn(i32) -> u64>(driver.address(name)) };
        read(0)
    };
    assert_eq!((read(c"memtrace_cusim_graph_used"), read(c"memtrace_cusim_graph_reserved")), (used, reserved));
    (used, reserved)
}

/// Events of memory of graphs: operation, address, bytes, result code.
fn log(driver: Driver) -> Vec<(Op, u64, u64, u32)> {
    let of_graphs = |record: &memtrace_cusim::history::HistoryRecord| record.kind == BlockKind::Graph;
    let records = records(driver).into_iter().filter(of_graphs);
    records.map(|record| (record.op, record.address, record.size, record.result)).collect()
}

/// The parameters of an allocation node on the first device.
fn allocation(size: usize) -> [u64; 15] {
    let mut parameters = [0; 15];
    (parameters[0], parameters[1], parameters[13]) = (1, 1, size as u64);
    parameters
}

/// Adds an allocation node and returns its address.
fn add_allocation(driver: Driver, graph: u64, size: usize) -> u64 {
    let mut parameters = allocation(size);
    assert_eq!(driver.graph_alloc(&mut 0, graph, std::ptr::null(), 0, &mut parameters), 0);
    parameters[14]
}

fn new_graph(driver: Driver) -> u64 {
    let mut graph = 0;
    assert_eq!(driver.graph_create(&mut graph, 0), 0);
    graph
}

fn instance(driver: Driver, graph: u64, flags: u64) -> u64 {
    let mut executable = 0;
    assert_eq!(driver.instantiate(&mut executable, graph, flags), 0);
    executable
}

#[test]
fn a_launch_allocates_and_frees() {
    in_child("a_launch_allocates_and_frees", &[], || {
        let driver = Driver::start();
        let (graph, mut stream, mut node) = (new_graph(driver), 0, 0);
        assert_eq!(driver.stream_create(&mut stream, 0), 0);
        let address = add_allocation(driver, graph, 1000);
        assert_eq!(driver.graph_free(&mut node, graph, std::ptr::null(), 0, address), 0);
        assert_eq!(driver.graph_free(&mut 0, graph, std::ptr::null(), 0, address), INVALID_VALUE, "twice");
        assert_eq!(driver.graph_free(&mut 0, graph, std::ptr::null(), 0, address + 1), INVALID_VALUE);
        let executable = instance(driver, graph, 0);
        assert_eq!((of_graphs(driver), driver.free(address)), ((0, 0), INVALID_VALUE), "nothing is there yet");
        assert_eq!((driver.launch(executable, stream), driver.launch(executable, stream)), (0, 0));
        assert_eq!(of_graphs(driver), (0, 2 << 20));
        let once = [(Op::Alloc, address, 1000, 0), (Op::Free, address, 1000, 0)];
        assert_eq!(log(driver), [once, once].concat());
        let last = *records(driver).last().unwrap();
        assert_eq!((last.stream, last.device, last.used, last.reserved), (stream, 0, 0, 2 << 20));
        assert_eq!((driver.executable_destroy(executable), driver.graph_destroy(graph)), (0, 0));
        assert_eq!(
            (driver.executable_destroy(executable), driver.graph_destroy(graph)),
            (INVALID_VALUE, INVALID_VALUE)
        );
    });
}

#[test]
fn what_a_launch_leaves_outlives_the_graph() {
    in_child("what_a_launch_leaves_outlives_the_graph", &[], || {
        let driver = Driver::start();
        let graph = new_graph(driver);
        let addresses = [3 * MIB, MIB].map(|size| add_allocation(driver, graph, size));
        let executable = instance(driver, graph, 0);
        assert_eq!(driver.launch(executable, 0), 0);
        assert_eq!(driver.launch(executable, 0), INVALID_VALUE, "the first launch's memory is still there");
        assert_eq!((driver.executable_destroy(executable), driver.graph_destroy(graph)), (0, 0));
        let mut read = [9; 4];
        assert_eq!(driver.to_device(addresses[0] + 100, [1, 2, 3, 4].as_ptr(), 4), 0);
        assert_eq!((driver.to_host(read.as_mut_ptr(), addresses[0] + 100, 4), read), (0, [1, 2, 3, 4]));
        assert_eq!((driver.free_async(addresses[0], 0), driver.free(addresses[1])), (0, 0), "either call frees it");
        assert_eq!((driver.free_async(addresses[0], 0), of_graphs(driver)), (INVALID_VALUE, (0, 4 << 20)));
        let (mut free, mut total, mut high) = (0, 0, 0);
        assert_eq!((driver.memory(&mut free, &mut total), total - free), (0, 4 * MIB));
        assert_eq!(driver.graph_trim(0), 0);
        assert_eq!((driver.memory(&mut free, &mut total), total - free), (0, 0));
        assert_eq!((driver.graph_attribute(0, 3, &mut high), high), (0, 4 << 20));
        assert_eq!(
            (driver.graph_set_attribute(0, 3, &mut 1), driver.graph_set_attribute(0, 3, &mut 0)),
            (INVALID_VALUE, 0)
        );
        assert_eq!((driver.graph_attribute(0, 3, &mut high), high), (0, 0));
        assert_eq!(log(driver).last(), Some(&(Op::Release, 0, 4 << 20, 0)));
    });
}

#[test]
fn what_is_left_is_freed_at_the_next_launch_if_that_is_wanted() {
    in_child("what_is_left_is_freed_at_the_next_launch_if_that_is_wanted", &[], || {
        let driver = Driver::start();
        let graph = new_graph(driver);
        let address = add_allocation(driver, graph, 700);
        let executable = instance(driver, graph, AUTO_FREE);
        assert_eq!((driver.launch(executable, 0), driver.launch(executable, 0)), (0, 0));
        assert_eq!(log(driver).iter().map(|record| record.0).collect::<Vec<_>>(), [Op::Alloc, Op::Free, Op::Alloc]);
        assert_eq!((of_graphs(driver), driver.reset(0)), ((1024, 2 << 20), 0));
        assert_eq!((log(driver).last(), of_graphs(driver).0), (Some(&(Op::Bulk, address, 700, 0)), 0));
        assert_eq!((driver.launch(executable, 0), driver.free(address)), (0, 0), "the address is the same");
    });
}

#[test]
fn another_graph_may_free() {
    in_child("another_graph_may_free", &[], || {
        let driver = Driver::start();
        let (first, second) = (new_graph(driver), new_graph(driver));
        let address = add_allocation(driver, first, 4096);
        assert_eq!(driver.graph_free(&mut 0, second, std::ptr::null(), 0, address), 0);
        assert_eq!(driver.graph_free(&mut 0, first, std::ptr::null(), 0, address), INVALID_VALUE, "one or the other");
        let (allocates, frees) = (instance(driver, first, 0), instance(driver, second, 0));
        assert_eq!(driver.launch(frees, 0), INVALID_VALUE, "nothing is there yet");
        assert_eq!((driver.launch(allocates, 0), driver.launch(frees, 0)), (0, 0));
        assert_eq!((driver.launch(allocates, 0), driver.launch(frees, 0)), (0, 0));
        assert_eq!((log(driver).len(), of_graphs(driver).0), (4, 0));
    });
}

#[test]
fn a_graph_with_memory_is_instantiated_once_at_a_time() {
    in_child("a_graph_with_memory_is_instantiated_once_at_a_time", &[], || {
        let driver = Driver::start();
        let (graph, mut executable, mut text) = (new_graph(driver), 0, [9; 4]);
        add_allocation(driver, graph, 1);
        let mut parameters = [AUTO_FREE, 0, 9, 9_u64];
        assert_eq!(driver.instantiate_old(&mut executable, graph, &mut 9, text.as_mut_ptr(), 4), 0);
        assert_eq!(driver.instantiate(&mut 0, graph, 0), INVALID_VALUE);
        assert_eq!((driver.instantiate_with(&mut 0, graph, &mut parameters), parameters[3] as u32), (INVALID_VALUE, 1));
        assert_eq!((driver.graph_clone(&mut 0, graph), driver.executable_destroy(executable)), (INVALID_VALUE, 0));
        assert_eq!((driver.instantiate_with(&mut executable, graph, &mut parameters), parameters[3] as u32), (0, 0));
        let (plain, mut clone) = (new_graph(driver), 0);
        assert_eq!((driver.instantiate(&mut 0, plain, 0), driver.instantiate(&mut 0, plain, 0)), (0, 0));
        assert_eq!(driver.graph_clone(&mut clone, plain), 0);
        assert_eq!(driver.instantiate(&mut 0, clone, 16), INVALID_VALUE, "no such flag");
    });
}

#[test]
fn nodes_of_all_types_are_listed() {
    in_child("nodes_of_all_types_are_listed", &[], || {
        let driver = Driver::start();
        let (graph, mut handles, mut count, mut kind) = (new_graph(driver), [0; 4], 0, 9);
        let mut parameters = [0; 32];
        parameters[0] = 10;
        parameters[2..17].copy_from_slice(&allocation(5000));
        assert_eq!(driver.graph_node(&mut handles[0], graph, std::ptr::null(), 0, &mut parameters), 0);
        let (first, address) = (handles[0], parameters[16]);
        (parameters[0], parameters[2]) = (11, address);
        assert_eq!(driver.graph_node_with_data(&mut handles[1], graph, &first, 0, 1, &mut parameters), 0);
        parameters[0] = 5;
        assert_eq!(driver.graph_node(&mut handles[2], graph, &first, 1, &mut parameters), 0);
        assert_eq!(driver.graph_node(&mut 0, graph, &7, 1, &mut parameters), INVALID_VALUE, "no such node");
        let mut listed = [9; 4];
        assert_eq!((driver.graph_nodes(graph, std::ptr::null_mut(), &mut count), count), (0, 3));
        count = 4;
        assert_eq!((driver.graph_nodes(graph, listed.as_mut_ptr(), &mut count), count, listed), (0, 3, handles));
        for (node, expected) in handles.iter().zip([10, 11, 5]) {
            assert_eq!((driver.node_type(*node, &mut kind), kind), (0, expected));
        }
        let (mut known, mut freed) = ([9; 15], 0);
        assert_eq!((driver.alloc_node_parameters(handles[0], &mut known), known[13], known[14]), (0, 5000, address));
        assert_eq!((driver.free_node_parameters(handles[1], &mut freed), freed), (0, address));
        assert_eq!(driver.free_node_parameters(handles[0], &mut freed), INVALID_VALUE);
    });
}

#[test]
fn captured_allocations_become_nodes() {
    in_child("captured_allocations_become_nodes", &[], || {
        let driver = Driver::start();
        let (mut stream, mut graph, mut pooled, mut address, mut kept) = (0, 0, 0, 0, 0);
        let (mut status, mut id, mut told, mut nodes, mut count) = (9, 0, 0, std::ptr::null(), 9);
        assert_eq!((driver.stream_create(&mut stream, 0), driver.alloc_async(&mut pooled, 512, stream)), (0, 0));
        assert_eq!(driver.capture_info(stream, &mut status, &mut id, &mut told, &mut nodes, &mut count), 0);
        assert_eq!((status, driver.begin_capture(stream, 0)), (0, 0));
        assert_eq!(driver.alloc_async(&mut address, 100_000, stream), 0);
        assert_eq!(driver.alloc_async(&mut kept, 3, stream), 0);
        assert_eq!(driver.fill(address, 1, 100_000, stream), 0, "is not done now");
        assert_eq!(driver.free_async(address, stream), 0);
        assert_eq!(driver.free_async(pooled, stream), INVALID_VALUE, "is not a graph's");
        assert_eq!(driver.capture_info(stream, &mut status, &mut id, &mut told, &mut nodes, &mut count), 0);
        assert_eq!((status, count, log(driver)), (1, 1, vec![]));
        assert_eq!((driver.end_capture(stream, &mut graph), graph), (0, told));
        assert_eq!((driver.graph_nodes(graph, std::ptr::null_mut(), &mut count), count), (0, 4));
        let executable = instance(driver, graph, 0);
        assert_eq!((driver.launch(executable, stream), of_graphs(driver)), (0, (512, 2 << 20)));
        let expected = [(Op::Alloc, address, 100_000, 0), (Op::Alloc, kept, 3, 0), (Op::Free, address, 100_000, 0)];
        assert_eq!((log(driver), driver.free_async(pooled, stream)), (expected.to_vec(), 0));
    });
}

#[test]
fn a_capture_may_go_on_in_a_graph() {
    in_child("a_capture_may_go_on_in_a_graph", &[], || {
        let driver = Driver::start();
        let (graph, mut stream, mut ended) = (new_graph(driver), 0, 0);
        let address = add_allocation(driver, graph, 512);
        assert_eq!(driver.stream_create(&mut stream, 0), 0);
        assert_eq!(driver.capture_into(stream, graph, std::ptr::null(), 0, 0, 0), 0);
        assert_eq!(driver.free_async(address, stream), 0);
        assert_eq!((driver.end_capture(stream, &mut ended), ended), (0, graph));
        let executable = instance(driver, graph, 0);
        assert_eq!((driver.launch(executable, stream), driver.launch(executable, stream)), (0, 0));
        assert_eq!(log(driver).len(), 4);
    });
}

#[test]
fn capacity_counts_memory_of_graphs() {
    in_child("capacity_counts_memory_of_graphs", &[("MEMTRACE_CUSIM_MEMORY", "64MiB")], || {
        let driver = Driver::start();
        let (graph, mut classic, mut other) = (new_graph(driver), 0, 0);
        add_allocation(driver, graph, 20 * MIB);
        let large = add_allocation(driver, graph, 40 * MIB);
        let executable = instance(driver, graph, AUTO_FREE);
        assert_eq!(driver.alloc(&mut classic, 5 * MIB), 0);
        assert_eq!(driver.launch(executable, 0), OUT_OF_MEMORY);
        assert_eq!(log(driver), [(Op::Alloc, 0, 40 << 20, OUT_OF_MEMORY)], "nothing was done");
        assert_eq!((driver.free(classic), driver.launch(executable, 0)), (0, 0));
        assert_eq!((driver.alloc(&mut other, 5 * MIB), driver.free_async(large, 0)), (OUT_OF_MEMORY, 0));
        assert_eq!((of_graphs(driver), driver.synchronize()), ((20 << 20, 60 << 20), 0));
        assert_eq!(of_graphs(driver).1, 60 << 20, "a synchronise leaves it");
        assert_eq!((driver.alloc(&mut other, 5 * MIB), of_graphs(driver).1), (0, 20 << 20), "who needs memory gets it");
    });
}

#[test]
fn the_threads_own_stream_is_captured_on_its_thread_alone() {
    in_child("the_threads_own_stream_is_captured_on_its_thread_alone", &[], || {
        let driver = Driver::start();
        let (mut graph, mut address, mut elsewhere) = (0, 0, 0);
        assert_eq!(driver.begin_capture(2, 2), 0);
        assert_eq!(driver.alloc_async(&mut address, 1000, 2), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                driver.enter(0);
                assert_eq!(driver.alloc_async(&mut elsewhere, 2000, 2), 0);
            });
        });
        assert_eq!(records(driver).iter().map(|record| record.size).collect::<Vec<_>>(), [2000]);
        assert_eq!(driver.end_capture(2, &mut graph), 0);
        assert_eq!(driver.launch(instance(driver, graph, 0), 2), 0);
        assert_eq!(records(driver).iter().map(|record| record.size).collect::<Vec<_>>(), [2000, 1000]);
        assert_ne!(driver.begin_capture(0, 2), 0, "the legacy stream cannot be");
        assert_eq!((driver.free_async(address, 2), driver.free_async(elsewhere, 2)), (0, 0));
    });
}

/// `cuda.h`, `CUgraphChildGraphNodeOwnership`: memory nodes are in a child only if the parent takes it over.
#[test]
fn a_child_that_is_taken_over_brings_its_memory() {
    in_child("a_child_that_is_taken_over_brings_its_memory", &[], || {
        let driver = Driver::start();
        let (mut parent, mut child, mut node, mut executable) = (0, 0, 0, 0);
        assert_eq!((driver.graph_create(&mut parent, 0), driver.graph_create(&mut child, 0)), (0, 0));
        let mut memory = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1000, 0];
        assert_eq!(driver.graph_alloc(&mut node, child, std::ptr::null(), 0, &mut memory), 0);
        let mut parameters = [0; 32];
        (parameters[0], parameters[2]) = (4, child);
        let add = |node: &mut u64, words: &mut [u64; 32]| driver.graph_node(node, parent, std::ptr::null(), 0, words);
        assert_eq!(add(&mut node, &mut parameters), INVALID_VALUE, "a copy has no memory");
        parameters[3] = 1;
        assert_eq!(add(&mut node, &mut parameters), 0);
        assert_eq!(add(&mut node, &mut parameters), INVALID_VALUE, "it has a parent");
        assert_eq!(driver.graph_destroy(child), INVALID_VALUE);
        assert_eq!(driver.graph_alloc(&mut node, child, std::ptr::null(), 0, &mut memory), INVALID_VALUE);
        assert_eq!(driver.instantiate(&mut executable, child, 0), INVALID_VALUE);
        assert_eq!((driver.instantiate(&mut executable, parent, 0), driver.launch(executable, 0)), (0, 0));
        assert_eq!((driver.free(memory[14]), driver.free(memory[14])), (0, INVALID_VALUE));
        assert_eq!((driver.graph_destroy(parent), driver.graph_destroy(child)), (0, INVALID_VALUE));
    });
}
