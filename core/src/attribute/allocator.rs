//! Suballocators of frameworks. They allocate large blocks and hand out parts of them to tensors.

use super::Attribution;
use super::frame_place::FramePlace;
use super::matched_frame::{MatchedFrame, matched_frames};
use super::torch::is_allocator;
use crate::snapshot::{Fact, StackId};

/// The suballocator that allocated the block: its crate, spelled as in `use` (`cubecl_cuda`), or PyTorch. Snapshots of
/// PyTorch have no suballocator: their blocks are those that PyTorch's allocator hands out.
pub fn allocator(data: &Attribution<'_>, stack: StackId) -> Option<String> {
    let is_pytorchs = |frame: &MatchedFrame<'_>| is_allocator(frame.frame) && !data.is_python();
    let found = matched_frames(data, stack).find(|frame| frame.is(Fact::Allocator) || is_pytorchs(frame))?;
    Some(if is_allocator(found.frame) { "PyTorch".to_owned() } else { FramePlace::of(found.frame).package })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::Either;
    use crate::recording::DeviceView;
    use crate::snapshot::Category;
    use crate::snapshot::testing::{Story, frame, registry, stacks};

    const STORAGE: &str =
        "<cubecl_cuda::compute::storage::gpu::GpuStorage as cubecl_runtime::storage::base::ComputeStorage>";

    /// A page of a suballocator, allocated by a server thread, and a block of the program.
    fn page_and_own(storage: &str, file: &str) -> Story {
        let driver = frame("malloc_async", &registry("cudarc-0.19.10/src/driver/result.rs"), 485);
        let own = frame("net::main", "/home/u/net/src/main.rs", 9);
        let mut trace = Story::cuda(0);
        trace.stacks(stacks(vec![driver, frame(storage, file, 174), own], [&[0, 1][..], &[0, 2], &[0, 1, 2]]));
        trace
    }

    #[test]
    fn blocks_of_allocators_have_the_name_of_their_crate() {
        let file = registry("cubecl-cuda-0.10.0/src/compute/storage/gpu.rs");
        let symbol = format!("{STORAGE}::alloc");
        for (function, file) in [("alloc", &*file), (&*symbol, &*file), (&*symbol, "")] {
            let data = page_and_own(function, file).build();
            let names = [1, 2, 3].map(|stack| allocator(&Attribution::new(&data), StackId(stack)));
            assert_eq!(
                names,
                [Some("cubecl_cuda".to_owned()), None, Some("cubecl_cuda".to_owned())],
                "{function} {file}"
            );
        }
        let data = page_and_own("alloc", &registry("cubecl-runtime-0.10.0/src/compute/storage/gpu.rs")).build();
        assert_eq!(allocator(&Attribution::new(&data), StackId(1)), None);
    }

    /// Forty segments of PyTorch's allocator, in a recording with or without Python's lines.
    fn segments(file: &str) -> (Option<String>, usize) {
        let mut trace = Story::cuda(0);
        let frames =
            ["c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::alloc_block", "at::empty", "step"];
        let [segment, empty, step] = frames.map(|function| frame(function, "", 0));
        let step = crate::snapshot::Frame { file: (!file.is_empty()).then(|| file.into()), ..step };
        trace.stacks(stacks(vec![segment, empty, step], [&[0, 1, 2][..]]));
        for at in 0..40 {
            trace.at(1_000 + at).alloc(at, 2 << 20).on(StackId(1));
        }
        let data = trace.build();
        let found = allocator(&Attribution::new(&data), StackId(1));
        (found, crate::analysis::accumulation(&DeviceView::of(&data, &data.devices[0])).len())
    }

    #[test]
    fn pytorchs_segments_are_its_allocators_and_do_not_accumulate() {
        assert_eq!(segments(""), (Some("PyTorch".to_owned()), 0));
        // In a snapshot of PyTorch, the blocks are what the allocator hands out.
        assert_eq!(segments("train.py"), (None, 1));
    }

    #[test]
    fn blocks_of_allocators_are_unknown_however_long_they_live() {
        let mut trace = page_and_own("alloc", &registry("cubecl-cuda-0.10.0/src/compute/storage/gpu.rs"));
        trace.alloc("brief", 2000).on(StackId(1));
        trace.free("brief");
        trace.alloc("page", 3000).on(StackId(1));
        trace.alloc("own", 500).on(StackId(2));
        trace.free("own");
        trace.alloc("last", 700).on(StackId(2));
        let data = trace.build();
        let device = &data.devices[0];
        let categories = DeviceView::of(&data, device).categories().clone();
        let all = [0, 2, 3].map(|at| device.records[at].alloc_seq);
        let found = all.map(|seq| (categories.get(seq), categories.either(seq)));
        let given_out = (Category::Unknown, Some(Either::GivenOut));
        assert_eq!(found, [given_out, given_out, (Category::Temporary, None)]);
    }
}
