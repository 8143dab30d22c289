//! Streams, events and graphs.

use crate::through_the_driver;

through_the_driver! {
    fn cudaStreamCreate(stream: *mut u64) = c"cuStreamCreate" with (stream => *mut u64, 0 => u32);
    fn cudaStreamCreateWithFlags(stream: *mut u64, flags: u32) = c"cuStreamCreate";
    fn cudaStreamCreateWithPriority(stream: *mut u64, flags: u32, priority: i32) = c"cuStreamCreateWithPriority";
    fn cudaStreamDestroy(stream: u64) = c"cuStreamDestroy_v2";
    fn cudaStreamGetPriority(stream: u64, priority: *mut i32) = c"cuStreamGetPriority";
    fn cudaStreamQuery(stream: u64) = c"cuStreamQuery";
    fn cudaStreamSynchronize(stream: u64) = c"cuStreamSynchronize";
    fn cudaStreamSynchronize_ptsz(stream: u64) = c"cuStreamSynchronize_ptsz";
    fn cudaStreamWaitEvent(stream: u64, event: u64, flags: u32) = c"cuStreamWaitEvent";
    fn cudaLaunchHostFunc(stream: u64, function: usize, argument: usize) = c"cuLaunchHostFunc";
    fn cudaEventCreate(event: *mut u64) = c"cuEventCreate" with (event => *mut u64, 0 => u32);
    fn cudaEventCreateWithFlags(event: *mut u64, flags: u32) = c"cuEventCreate";
    fn cudaEventDestroy(event: u64) = c"cuEventDestroy_v2";
    fn cudaEventElapsedTime(milliseconds: *mut f32, from: u64, to: u64) = c"cuEventElapsedTime";
    fn cudaEventQuery(event: u64) = c"cuEventQuery";
    fn cudaEventRecord(event: u64, stream: u64) = c"cuEventRecord";
    fn cudaEventRecordWithFlags(event: u64, stream: u64, flags: u32) = c"cuEventRecordWithFlags";
    fn cudaEventSynchronize(event: u64) = c"cuEventSynchronize";
    fn cudaStreamBeginCapture(stream: u64, mode: u32) = c"cuStreamBeginCapture_v2";
    fn cudaStreamEndCapture(stream: u64, graph: *mut u64) = c"cuStreamEndCapture";
    fn cudaStreamIsCapturing(stream: u64, status: *mut u32) = c"cuStreamIsCapturing";
    fn cudaStreamGetCaptureInfo(stream: u64, status: *mut u32, id: *mut u64, graph: *mut u64, before: usize, edges: usize, count: *mut usize) =
        c"cuStreamGetCaptureInfo_v3";
    fn cudaStreamGetCaptureInfo_v2(stream: u64, status: *mut u32, id: *mut u64, graph: *mut u64, before: usize, count: *mut usize) =
        c"cuStreamGetCaptureInfo_v2";
    fn cudaStreamGetCaptureInfo_v3(stream: u64, status: *mut u32, id: *mut u64, graph: *mut u64, before: usize, edges: usize, count: *mut usize) =
        c"cuStreamGetCaptureInfo_v3";
    fn cudaThreadExchangeStreamCaptureMode(mode: *mut u32) = c"cuThreadExchangeStreamCaptureMode";
    fn cudaGraphInstantiate(executable: *mut u64, graph: u64, flags: u64) = c"cuGraphInstantiateWithFlags";
    fn cudaGraphInstantiateWithFlags(executable: *mut u64, graph: u64, flags: u64) = c"cuGraphInstantiateWithFlags";
    fn cudaGraphLaunch(executable: u64, stream: u64) = c"cuGraphLaunch";
    fn cudaGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize) = c"cuGraphGetNodes";
    fn cudaGraphDestroy(graph: u64) = c"cuGraphDestroy";
    fn cudaGraphExecDestroy(executable: u64) = c"cuGraphExecDestroy";
}
