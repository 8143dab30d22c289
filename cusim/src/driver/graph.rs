//! Graphs: enough for a program that captures one and launches it. They do nothing.

use super::abi::Out;
use super::copy::check_stream;
use super::process::with;
use crate::code::{Answer, INVALID_VALUE};

driver! {
    fn cuGraphInstantiateWithFlags(executable: Out<u64>, graph: u64, _flags: u64) {
        check(graph)?;
        executable.set(with(|machine| Ok(machine.new_handle()))?)
    }

    fn cuGraphLaunch(executable: u64, stream: u64) {
        check(executable)?;
        check_stream(stream)
    }

    fn cuGraphUpload(executable: u64, stream: u64) {
        check(executable)?;
        check_stream(stream)
    }

    fn cuGraphExecDestroy(executable: u64) {
        check(executable)
    }

    fn cuGraphDestroy(graph: u64) {
        check(graph)
    }
}

per_thread! {
    fn cuGraphLaunch_ptsz = cuGraphLaunch(executable: u64; stream);
    fn cuGraphUpload_ptsz = cuGraphUpload(executable: u64; stream);
}

fn check(handle: u64) -> Answer {
    if handle == 0 { Err(INVALID_VALUE) } else { Ok(()) }
}
