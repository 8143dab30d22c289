//! Property test: for random programs with graphs, virtual memory and arrays, the counters and the log equal those of a
//! naive model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Access, AllocationProperties, Descriptor, SimMachine};
use crate::code::{Answer, INVALID_VALUE, OUT_OF_MEMORY};
use crate::config::Config;
use crate::history::{BlockKind, Op};

const MEMORY: u64 = 256 << 20;
const MIB: u64 = 1 << 20;

#[derive(Clone, Debug)]
enum ModelStep {
    /// A graph with allocations, some of which it frees.
    Graph {
        blocks: Vec<(u64, bool)>,
        flags: u64,
    },
    Launch(usize),
    Destroy(usize),
    FreeLeft(usize),
    Trim,
    Create {
        steps: u64,
    },
    Map(usize),
    Unmap(usize),
    Release(usize),
    Array {
        width: u64,
    },
    EndArray(usize),
}

struct ModelGraph {
    handle: u64,
    executable: u64,
    /// Address, size, and whether the graph frees the block.
    blocks: Vec<(u64, u64, bool)>,
    frees_on_launch: bool,
}

/// A handle's size, how often it can be released, and where it is mapped.
struct ModelHandle {
    size: u64,
    references: u32,
    mappings: Vec<u64>,
}

#[derive(Default)]
struct Model {
    graphs: Vec<ModelGraph>,
    /// What launches left allocated: address to size.
    left: BTreeMap<u64, u64>,
    handles: BTreeMap<u64, ModelHandle>,
    arrays: BTreeMap<u64, u64>,
    context: u64,
}

const PROPERTIES: AllocationProperties =
    AllocationProperties { allocation: 1, handles: 0, location: 1, device: 0, of_windows: 0, flags: 0 };

fn step() -> impl Strategy<Value = ModelStep> {
    let size = prop_oneof![1_u64..5000, MIB..40 * MIB];
    let blocks = prop::collection::vec((size, any::<bool>()), 1..4);
    prop_oneof![
        3 => (blocks, 0_u64..2).prop_map(|(blocks, flags)| ModelStep::Graph { blocks, flags }),
        6 => any::<usize>().prop_map(ModelStep::Launch),
        1 => any::<usize>().prop_map(ModelStep::Destroy),
        3 => any::<usize>().prop_map(ModelStep::FreeLeft),
        1 => Just(ModelStep::Trim),
        2 => (1_u64..40).prop_map(|steps| ModelStep::Create { steps }),
        2 => any::<usize>().prop_map(ModelStep::Map),
        2 => any::<usize>().prop_map(ModelStep::Unmap),
        2 => any::<usize>().prop_map(ModelStep::Release),
        2 => (1_u64..20 * MIB).prop_map(|width| ModelStep::Array { width }),
        1 => any::<usize>().prop_map(ModelStep::EndArray),
    ]
}

fn pick<T>(items: &BTreeMap<u64, T>, which: usize) -> Option<u64> {
    items.keys().nth(which % items.len().max(1)).copied()
}

fn take_step(machine: &mut SimMachine, model: &mut Model, step: &ModelStep) {
    match step {
        ModelStep::Graph { blocks, flags } => add_graph(machine, model, blocks, *flags),
        ModelStep::Launch(which) => launch(machine, model, *which),
        ModelStep::Destroy(which) if !model.graphs.is_empty() => {
            let graph = model.graphs.swap_remove(which % model.graphs.len());
            machine.destroy_graph(graph.handle).unwrap();
            machine.destroy_executable(graph.executable).unwrap();
        }
        ModelStep::FreeLeft(which) => {
            let Some(address) = pick(&model.left, *which) else { return };
            machine.free(address, 0, 0).unwrap();
            assert_eq!(machine.free(address, 0, 0), Err(INVALID_VALUE));
            model.left.remove(&address);
        }
        ModelStep::Trim => machine.trim_graphs(0),
        ModelStep::Array { width } => add_array(machine, model, *width),
        ModelStep::EndArray(which) => {
            let Some(handle) = pick(&model.arrays, *which) else { return };
            machine.destroy_array(handle, false, 0).unwrap();
            model.arrays.remove(&handle);
        }
        other => virtual_step(machine, model, other),
    }
}

fn add_graph(machine: &mut SimMachine, model: &mut Model, blocks: &[(u64, bool)], flags: u64) {
    let handle = machine.create_graph();
    let add = |&(size, is_freed): &(u64, bool)| (machine.add_allocation(handle, 0, size).unwrap().1, size, is_freed);
    let blocks: Vec<_> = blocks.iter().map(add).collect();
    for (address, ..) in blocks.iter().filter(|(.., is_freed)| *is_freed) {
        machine.add_free(handle, *address).unwrap();
    }
    let executable = machine.instantiate(handle, flags).unwrap();
    model.graphs.push(ModelGraph { handle, executable, blocks, frees_on_launch: flags == 1 });
}

fn launch(machine: &mut SimMachine, model: &mut Model, which: usize) {
    let Some(graph) = model.graphs.get(which % model.graphs.len().max(1)) else { return };
    let left_before = graph.blocks.iter().any(|(address, ..)| model.left.contains_key(address));
    let answer = machine.launch(graph.executable, model.context, 3);
    if left_before && !graph.frees_on_launch {
        return assert_eq!(answer, Err(INVALID_VALUE));
    }
    model.left.retain(|address, _| graph.blocks.iter().all(|block| block.0 != *address));
    if answer.is_ok() {
        let kept = graph.blocks.iter().filter(|(.., is_freed)| !is_freed);
        model.left.extend(kept.map(|(address, size, _)| (*address, *size)));
        return;
    }
    // The graph's own frees come last.
    let needed: u64 = graph.blocks.iter().map(|(_, size, _)| size.next_multiple_of(512)).sum();
    check_refused(machine, model, answer, needed);
}

/// A request is refused only if there is too little memory, including what graphs have reserved and do not use.
fn check_refused<T: std::fmt::Debug>(machine: &SimMachine, model: &Model, answer: Answer<T>, needed: u64) {
    assert_eq!(answer.map(|_| ()), Err(OUT_OF_MEMORY));
    let spare = machine.counters(0, BlockKind::Graph).reserved - used(model).next_multiple_of(2 * MIB);
    assert!(machine.memory(0).0 + spare < needed.next_multiple_of(2 * MIB), "there was room");
}

fn virtual_step(machine: &mut SimMachine, model: &mut Model, step: &ModelStep) {
    match step {
        ModelStep::Create { steps } => {
            let size = steps * 2 * MIB;
            match machine.create_virtual(BlockKind::Virtual, size, PROPERTIES, 0) {
                Ok(handle) => {
                    model.handles.insert(handle, ModelHandle { size, references: 1, mappings: vec![] });
                }
                refused => check_refused(machine, model, refused, size),
            }
        }
        ModelStep::Map(which) | ModelStep::Unmap(which) | ModelStep::Release(which) => {
            let Some(handle) = pick(&model.handles, *which) else { return };
            let memory = model.handles.get_mut(&handle).unwrap();
            change(machine, handle, memory, step);
            if memory.references == 0 && memory.mappings.is_empty() {
                model.handles.remove(&handle);
            }
        }
        _ => {}
    }
}

fn change(machine: &mut SimMachine, handle: u64, memory: &mut ModelHandle, step: &ModelStep) {
    match step {
        ModelStep::Map(_) => {
            let address = machine.reserve_addresses(memory.size, 0).unwrap();
            let answer = machine.map(address, memory.size, handle, 0);
            assert_eq!(answer.is_ok(), memory.references > 0);
            if answer.is_ok() {
                machine.set_access(address, memory.size, 0, Access::READ_AND_WRITE).unwrap();
                machine.check_range(address, memory.size).unwrap();
                memory.mappings.push(address);
            }
        }
        ModelStep::Unmap(_) => {
            let Some(address) = memory.mappings.pop() else { return };
            machine.unmap(address, memory.size, 0).unwrap();
            machine.free_addresses(address, memory.size).unwrap();
        }
        _ if memory.references > 0 => {
            machine.release_virtual(handle, 0).unwrap();
            memory.references -= 1;
        }
        _ => assert_eq!(machine.release_virtual(handle, 0), Err(INVALID_VALUE)),
    }
}

fn add_array(machine: &mut SimMachine, model: &mut Model, width: u64) {
    let descriptor = Descriptor { width, height: 0, depth: 0, format: 1, channels: 4, flags: 0, padding: 0 };
    match machine.create_array(descriptor, 0, model.context, false) {
        Ok(handle) => {
            model.arrays.insert(handle, width * 4);
        }
        refused => check_refused(machine, model, refused, width * 4),
    }
}

fn used(model: &Model) -> u64 {
    model.left.values().map(|size| size.next_multiple_of(512)).sum()
}

fn check(machine: &SimMachine, model: &Model) {
    let graphs = machine.counters(0, BlockKind::Graph);
    assert_eq!(graphs.used, used(model));
    assert!(graphs.used <= graphs.reserved && graphs.reserved.is_multiple_of(2 * MIB));
    let of_handles: u64 = model.handles.values().map(|handle| handle.size).sum();
    let of_arrays: u64 = model.arrays.values().sum();
    assert_eq!(machine.counters(0, BlockKind::Virtual).used, of_handles);
    assert_eq!(machine.counters(0, BlockKind::Array).used, of_arrays);
    assert_eq!(machine.taken(0), graphs.reserved + of_handles + of_arrays);
    assert!(machine.taken(0) <= MEMORY);
}

/// The live blocks according to the log: kind and address to size.
fn replay(machine: &SimMachine) -> BTreeMap<(u32, u64), u64> {
    let mut live = BTreeMap::new();
    for record in machine.history().records().iter().filter(|record| record.result == 0) {
        let key = (record.kind as u32, record.address);
        match record.op {
            Op::Alloc => assert_eq!(live.insert(key, record.size), None, "twice"),
            Op::Free | Op::Bulk => assert_eq!(live.remove(&key), Some(record.size), "not there"),
            Op::Release => {}
        }
    }
    live
}

fn check_log(machine: &SimMachine, model: &Model) {
    let of_kind =
        |kind: BlockKind, of: Vec<(u64, u64)>| of.into_iter().map(move |(key, size)| ((kind as u32, key), size));
    let handles = model.handles.iter().map(|(handle, memory)| (*handle, memory.size)).collect();
    let expected: BTreeMap<_, _> = of_kind(BlockKind::Virtual, handles)
        .chain(of_kind(BlockKind::Graph, model.left.clone().into_iter().collect()))
        .chain(of_kind(BlockKind::Array, model.arrays.clone().into_iter().collect()))
        .collect();
    assert_eq!(replay(machine), expected);
}

proptest! {
    #![proptest_config(crate::random::programs(200))]

    #[test]
    fn counters_and_log_equal_a_naive_model(steps in prop::collection::vec(step(), 1..100)) {
        let mut machine = SimMachine::new(Config { memory: MEMORY, ..Config::default() }).unwrap();
        let context = machine.retain_primary(0).unwrap();
        let mut model = Model { context, ..Model::default() };
        for step in &steps {
            take_step(&mut machine, &mut model, step);
            check(&machine, &model);
        }
        check_log(&machine, &model);
        machine.release_primary(0).unwrap();
        model.left.clear();
        model.arrays.clear();
        while !model.graphs.is_empty() {
            take_step(&mut machine, &mut model, &ModelStep::Destroy(0));
        }
        assert!(machine.graph_memory.is_empty(), "addresses are given back");
        check(&machine, &model);
        check_log(&machine, &model);
    }
}
