//! Launches of graphs: enters the allocations, frees and uses of their nodes, in order.

use std::ffi::c_int;

use super::nodes;
use super::submit::{is_wanted, site};
use crate::hook::cuda::capture::{StreamCapture, capture_of};
use crate::hook::cuda::driver::SUCCESS;
use crate::hook::cuda::graphs::{self, GraphPart, LIVE, Node, PROGRAMS};
use crate::hook::cuda::types::{Class, DeviceHint, FreeRequest, Handle, Outcome, Place, Stream};
use crate::hook::cuda::{attention, notify};
use crate::record::uses::{OperationKind, Touched};
use crate::record::{EventSite, guard, uses};

pub(in crate::hook::cuda) fn graph_launched(program: Handle, stream: Stream) -> impl FnOnce(c_int) {
    let captured = if uses::is_on() { capture_of(stream) } else { None };
    let place = if attention::is_idle() { None } else { Some(Place::before(Class::Graph, stream, DeviceHint::Stream)) };
    move |result| {
        if let Some(capture) = captured.filter(|_| result == SUCCESS) {
            return launch_captured(capture, program.addr());
        }
        if result != SUCCESS || PROGRAMS.is_empty() && !uses::is_on() {
            return;
        }
        let steps = graphs::steps(program.addr());
        let uses = begin(&steps, stream);
        for node in steps {
            match node {
                Node::Part(part) => uses.iter().for_each(|uses| uses.apply(part)),
                Node::Alloc { address, size, device, site } => {
                    LIVE.insert(address, ());
                    let Some(place) = place else { continue };
                    let place = Place { device: device.or(place.device), ..place };
                    let outcome = Outcome { result, class: Class::Graph, address, size, stream, place, took: 0 };
                    notify::notify_alloc_at(&outcome, site);
                }
                Node::Free { address } => {
                    LIVE.remove(address).finish(result);
                    notify::notify_free(FreeRequest { class: Class::Graph, address, stream }).finish(result);
                }
            }
        }
    }
}

/// A graph launch in progress. The parts of its graph are entered as uses by one operation.
#[derive(Debug)]
struct GraphUses {
    site: EventSite,
}

/// Begins a launch. `None` if uses are not recorded.
fn begin(steps: &[Node], stream: Stream) -> Option<GraphUses> {
    if !is_wanted() {
        return None;
    }
    let _own = guard::own_work();
    let site = site(stream);
    uses::with(|table| {
        table.begin_graph();
        let epoch = table.epoch;
        let name = table.kernels.id(b"cuGraphLaunch");
        table.count(OperationKind::Graph, name);
        if !steps.iter().any(|step| matches!(step, Node::Part(GraphPart::Complete(of)) if *of == epoch)) {
            table.count(OperationKind::Opaque, name);
            return;
        }
        for step in steps {
            match step {
                Node::Part(GraphPart::Work(OperationKind::Opaque, kernel)) => table.count_opaque_launch(*kernel),
                Node::Part(GraphPart::Work(work, kernel)) => table.count(*work, *kernel),
                _ => {}
            }
        }
    })?;
    Some(GraphUses { site })
}

impl GraphUses {
    fn apply(&self, part: GraphPart) {
        let GraphPart::Use(word, access, kernel) = part else { return };
        uses::with(|table| {
            let mut touched = Touched::new();
            table.collect(word, access, &mut touched);
            table.apply(kernel, &touched, self.site);
        });
    }
}

impl Drop for GraphUses {
    fn drop(&mut self) {
        uses::with(|table| table.end_graph());
    }
}

/// Handles the launch of a graph on a captured stream. It becomes a child node of the graph that is being captured.
fn launch_captured(capture: StreamCapture, program: usize) {
    let parts = nodes::if_complete(&graphs::program_parts(program), "cuGraphLaunch");
    parts.iter().for_each(|part| capture.used(*part));
}
