//! Executable graphs, and what their launches allocate and free. Each device has memory for graphs apart from its
//! pools.

use super::access::Access;
use super::graphs::{GraphNode, NodeMemory, has_memory, node_type};
use super::outside::{OutsideRange, Role};
use super::{SimMachine, pool_index};
use crate::code::{Answer, INVALID_VALUE, OUT_OF_MEMORY, demand, demand_or};
use crate::config::MAX_DEVICES;
use crate::faults::CallKind;
use crate::history::{BlockKind, HistoryRecord, Op};
use crate::memory::{PoolCounters, SimBlock, Span};
use crate::own::{MmapVec, mmap_vec};

#[derive(Debug)]
pub(crate) struct Executable {
    graph: u64,
    nodes: MmapVec<GraphNode>,
    frees_on_launch: bool,
}

impl Executable {
    pub(crate) fn has_memory(&self) -> bool {
        has_memory(&self.nodes)
    }
}

/// `CUgraphInstantiate_flags`.
const AUTO_FREE_ON_LAUNCH: u64 = 1;
const ALL_FLAGS: u64 = 15;
const DEVICE_LAUNCH: u64 = 4;

/// Memory that a launch needs on a device in addition to the memory in use: after the nodes so far (`now`), and the
/// highest value of `now` (`most`).
#[derive(Clone, Copy, Default)]
struct Need {
    now: i64,
    most: i64,
    /// The size of the allocation at which `most` was reached.
    last: u64,
}

impl SimMachine {
    /// Makes an executable graph. A graph with memory nodes has at most one at a time.
    pub(crate) fn instantiate(&mut self, graph: u64, flags: u64) -> Answer<u64> {
        let is_wrong = flags & !ALL_FLAGS != 0 || flags & AUTO_FREE_ON_LAUNCH != 0 && flags & DEVICE_LAUNCH != 0;
        let mut others = self.executables.values();
        demand(!(is_wrong || self.has_memory(graph)? && others.any(|other| other.graph == graph)))?;
        let mut nodes = mmap_vec();
        nodes.extend_from_slice(&self.own_graph(graph)?.nodes);
        for node in &nodes {
            self.retain_memory(node.address);
        }
        let handle = self.new_handle();
        let frees_on_launch = flags & AUTO_FREE_ON_LAUNCH != 0;
        self.executables.insert(handle, Executable { graph, nodes, frees_on_launch });
        Ok(handle)
    }

    pub(crate) fn executable(&self, handle: u64) -> Answer<&Executable> {
        self.executables.get(&handle).ok_or(INVALID_VALUE)
    }

    pub(crate) fn destroy_executable(&mut self, handle: u64) -> Answer {
        let executable = self.executables.remove(&handle).ok_or(INVALID_VALUE)?;
        self.release_memory_of(&executable.nodes);
        Ok(())
    }

    /// Runs the nodes in the order in which they were added. A launch that runs out of memory only frees what the
    /// previous launch left (assumed).
    ///
    /// Physical memory is taken at the launch (assumed; a GPU may take it when the graph is uploaded).
    pub(crate) fn launch(&mut self, handle: u64, context: u64, stream: u64) -> Answer {
        self.executable(handle)?;
        let executable = self.executables.remove(&handle).ok_or(INVALID_VALUE)?;
        let answer = self.run(&executable, context, stream);
        self.executables.insert(handle, executable);
        answer
    }

    fn run(&mut self, executable: &Executable, context: u64, stream: u64) -> Answer {
        self.free_what_is_left(executable, context, stream)?;
        let needs = self.needs(&executable.nodes, (context, stream))?;
        for (device, need) in needs.iter().enumerate().filter(|(_, need)| need.most > 0) {
            let answer = self.reserve_for_graphs(device, need.most as u64);
            if answer.is_err() {
                self.record_graph(device, (0, need.last), (context, stream), answer);
                return answer;
            }
        }
        for node in &executable.nodes {
            match node.kind {
                node_type::ALLOCATE => self.allocate_for_graph(node.address, context, stream)?,
                node_type::FREE => self.free_if(Ok(()), node.address, (context, stream), false)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Frees what an earlier launch left allocated; fails if the graph does not permit this.
    fn free_what_is_left(&mut self, executable: &Executable, context: u64, stream: u64) -> Answer {
        for node in executable.nodes.iter().filter(|node| node.kind == node_type::ALLOCATE) {
            if self.outside_at(node.address).is_none() {
                continue;
            }
            demand(executable.frees_on_launch)?;
            self.free_if(Ok(()), node.address, (context, stream), false)?;
        }
        Ok(())
    }

    /// What the nodes need on each device. Fails if a node frees memory that is not live.
    fn needs(&mut self, nodes: &[GraphNode], caller: (u64, u64)) -> Answer<[Need; MAX_DEVICES]> {
        let mut needs = [Need::default(); MAX_DEVICES];
        for (index, node) in nodes.iter().enumerate().filter(|(_, node)| node.address != 0) {
            let memory = *self.graph_memory.get(&node.address).ok_or(INVALID_VALUE)?;
            let need = needs.get_mut(memory.device).ok_or(INVALID_VALUE)?;
            if node.kind == node_type::ALLOCATE {
                self.add_need(need, &memory, caller)?;
            } else {
                let is_earlier = nodes.iter().take(index).any(|other| other.address == node.address);
                demand(is_earlier || self.outside_at(node.address).is_some())?;
                need.now -= memory.taken as i64;
            }
        }
        Ok(needs)
    }

    fn add_need(&mut self, need: &mut Need, memory: &NodeMemory, caller: (u64, u64)) -> Answer {
        let answer = self.script.check(CallKind::Alloc, memory.size);
        if answer.is_err() {
            self.record_graph(memory.device, (0, memory.size), caller, answer);
        }
        need.now += memory.taken as i64;
        if need.now > need.most {
            (need.most, need.last) = (need.now, memory.size);
        }
        answer
    }

    fn allocate_for_graph(&mut self, address: u64, context: u64, stream: u64) -> Answer {
        let NodeMemory { device, size, taken, length, .. } = *self.graph_memory.get(&address).ok_or(INVALID_VALUE)?;
        demand_or(Span::open(address, length), OUT_OF_MEMORY)?;
        self.retain_memory(address);
        let block = SimBlock { address, size, taken, kind: BlockKind::Graph, context, id: 0 };
        self.put_outside(OutsideRange { device, block, role: Role::Graph, access: Access::FULL });
        Span::fill(address, taken, self.config.fill, self.next_block);
        self.pool_at_mut(pool_index(device, BlockKind::Graph))?.use_bytes(taken);
        self.record_graph(device, (address, size), (context, stream), Ok(()));
        Ok(())
    }

    /// Removes the memory of an allocation node; returns the index of its pool.
    pub(super) fn take_graph_memory(&mut self, address: u64) -> Answer<usize> {
        let found = self.remove_outside(address)?;
        Span::close(address, self.graph_memory.get(&address).ok_or(INVALID_VALUE)?.length);
        self.release_memory(address);
        let index = pool_index(found.device, BlockKind::Graph);
        self.pool_at_mut(index)?.counters.used -= found.block.taken;
        Ok(index)
    }

    /// Reserves memory for graphs so that `more` bytes can be used.
    fn reserve_for_graphs(&mut self, device: usize, more: u64) -> Answer {
        let index = pool_index(device, BlockKind::Graph);
        let pool = self.pool_at(index)?;
        let wanted = (pool.counters.used + more).next_multiple_of(pool.step);
        if wanted.saturating_sub(pool.counters.reserved) > self.memory(device).0 {
            self.shrink_pools(device, |_| 0);
        }
        let free = self.memory(device).0;
        let pool = self.pool_at_mut(index)?;
        let growth = wanted.saturating_sub(pool.counters.reserved);
        demand_or(growth <= free, OUT_OF_MEMORY)?;
        pool.reserve(growth);
        Ok(())
    }

    pub(crate) fn graph_counters_mut(&mut self, device: usize) -> Answer<&mut PoolCounters> {
        self.pool_at_mut(pool_index(device, BlockKind::Graph)).map(|pool| &mut pool.counters)
    }

    fn record_graph(&mut self, device: usize, (address, size): (u64, u64), caller: (u64, u64), answer: Answer) {
        let (context, stream) = caller;
        let record = HistoryRecord::new(Op::Alloc, BlockKind::Graph, device);
        let record = HistoryRecord { context, stream, address, size, ..record };
        self.record(record, answer, Some(pool_index(device, BlockKind::Graph)));
    }
}
