//! Uses of blocks: the first and the last operation on each, found from the arguments of launches, copies and fills.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED};
use cudarc::driver::{CudaContext, CudaStream};
use memtrace::snapshot::{BlockUses, MemoryKind};
use memtrace::{Device, Session, Snapshot, SnapshotData};

use super::kernels::{self, LaunchForm};
use super::raw;
use super::support::on_gpu;

const MIB: usize = 1 << 20;

/// A kernel with three pointers and a number; one with a structure of four words.
const PTX: &[u8] = b".version 9.0\n.target sm_90\n.address_size 64\n\
    .visible .entry add(\n\t.param .u64 a,\n\t.param .u64 .ptr .global b /* const */,\n\t.param .u64 c,\n\t.param .u32 n\n)\n{ ret; }\n\
    .visible .entry attention(\n\t.param .align 8 .b8 arguments[32]\n)\n{ ret; }\n\
    .visible .entry tiles(\n\t.param .align 64 .b8 map[128],\n\t.param .u64 out\n)\n{ ret; }\n";

fn new_stream() -> Arc<CudaStream> {
    CudaContext::new(0).unwrap().new_stream().unwrap()
}

fn record() -> Session {
    memtrace::builder().uses(true).start().unwrap()
}

/// The uses of the block with this size.
fn uses(snapshot: &SnapshotData, size: usize) -> BlockUses {
    let gpu = snapshot.device(Device::Cuda(0)).unwrap();
    let record = gpu.records.iter().rev().find(|record| record.size == size as u64).unwrap();
    *gpu.uses_of(record.alloc_seq).unwrap()
}

/// First and last operation, and how many.
fn span(snapshot: &SnapshotData, size: usize) -> (u64, u64, u64) {
    let uses = uses(snapshot, size);
    (uses.first.map_or(0, |used| used.operation), uses.last.map_or(0, |used| used.operation), uses.count)
}

fn kernel<'a>(snapshot: &'a Snapshot, uses: &BlockUses) -> &'a str {
    snapshot.gpu_work.as_ref().unwrap().kernel(uses.last.unwrap().kernel)
}

#[test]
fn launches_copies_and_fills_are_uses_with_kernel_and_line() {
    on_gpu(&[], || {
        let session = record();
        let owned = new_stream();
        let stream = owned.cu_stream();
        let add = kernels::function(kernels::load(PTX), "add");
        let [a, b, c, d] = [MIB, MIB + 1, MIB + 2, 1000].map(|size| raw::alloc_async(size, stream).unwrap());
        kernels::fill(a, MIB, stream);
        kernels::upload(b, &[7; 100], stream);
        kernels::launch(add, LaunchForm::Plain, &[vec![a + 8], vec![b], vec![c], vec![5]], stream);
        kernels::launch(add, LaunchForm::Plain, &[vec![a], vec![a], vec![d], vec![5]], stream);
        kernels::download(c, 100, stream);
        raw::free_async(b, stream).unwrap();
        let snapshot = session.snapshot();
        assert_eq!(
            [MIB, MIB + 1, MIB + 2, 1000].map(|size| span(&snapshot, size)),
            [(1, 4, 3), (2, 3, 2), (3, 5, 2), (4, 4, 1)]
        );
        let of_b = uses(&snapshot, MIB + 1);
        assert_eq!((of_b.reads, of_b.writes, of_b.freed_at), (1, 1, Some(5)));
        assert_eq!((kernel(&snapshot, &of_b), of_b.known_last().unwrap().operation), ("add", 3));
        assert_eq!(kernel(&snapshot, &uses(&snapshot, MIB + 2)), "cuMemcpyDtoHAsync_v2");
        let stack = of_b.last.unwrap().stack;
        assert!(snapshot.stacks.frames(stack).any(|frame| frame.file_or_empty().ends_with("cuda/uses.rs")));
        let totals = snapshot.gpu_work.as_ref().unwrap().totals;
        assert_eq!((totals.launches, totals.laid_out, totals.copies, totals.fills), (2, 2, 2, 1));
        let path = std::env::temp_dir().join(format!("uses-{}.memtrace", std::process::id()));
        snapshot.write(&path).unwrap();
        let read = memtrace::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!((&read.devices[1].uses, &read.gpu_work), (&snapshot.devices[1].uses, &snapshot.gpu_work));
    });
}

#[test]
fn without_the_setting_nothing_is_recorded() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let owned = new_stream();
        let stream = owned.cu_stream();
        let add = kernels::function(kernels::load(PTX), "add");
        let a = raw::alloc_async(MIB, stream).unwrap();
        kernels::launch(add, LaunchForm::Plain, &[vec![a], vec![a], vec![a], vec![5]], stream);
        let snapshot = session.snapshot();
        assert!(snapshot.gpu_work.is_none() && snapshot.device(Device::Cuda(0)).unwrap().uses.is_empty());
    });
}

#[test]
fn every_form_of_a_launch_shows_its_pointers() {
    on_gpu(&[], || {
        let session = record();
        let owned = new_stream();
        let stream = owned.cu_stream();
        let attention = kernels::function(kernels::load(PTX), "attention");
        for (at, form) in kernels::FORMS.into_iter().enumerate() {
            let a = raw::alloc_async(MIB + at, stream).unwrap();
            kernels::launch(attention, form, &[vec![1, 0, a + 512, 3]], stream);
            assert_eq!(span(&session.snapshot(), MIB + at).2, 1, "{form:?}");
        }
    });
}

#[test]
fn a_copy_whose_kind_the_driver_finds_may_carry_addresses_from_the_host() {
    on_gpu(&[], || {
        let owned = new_stream();
        let stream = owned.cu_stream();
        let unrecorded = raw::alloc_async(MIB + 3, stream).unwrap();
        let session = record();
        let add = kernels::function(kernels::load(PTX), "add");
        let [table, out, reached] = [MIB, MIB + 1, MIB + 2].map(|size| raw::alloc_async(size, stream).unwrap());
        let launch = || kernels::launch(add, LaunchForm::Plain, &[vec![table], vec![out], vec![out], vec![5]], stream);
        let words = [7, reached + 8];
        kernels::copy_unified(table, words.as_ptr().expose_provenance() as u64, size_of_val(&words), stream);
        launch();
        assert_eq!(span(&session.snapshot(), MIB + 2), (2, 2, 1));
        kernels::fill(table, MIB, stream);
        kernels::copy_unified(table, unrecorded, 16, stream);
        launch();
        assert_eq!(span(&session.snapshot(), MIB + 2), (2, 2, 1), "memory of the GPU is not read");
    });
}

#[test]
fn a_kernel_without_a_layout_forbids_claims_until_the_next_use() {
    on_gpu(&[], || {
        let session = record();
        let owned = new_stream();
        let stream = owned.cu_stream();
        let add = kernels::function(kernels::load(PTX), "add");
        let unknown = kernels::function(kernels::load(kernels::FAT_BINARY), "unknown");
        let [a, b] = [MIB, MIB + 1].map(|size| raw::alloc_async(size, stream).unwrap());
        kernels::launch(add, LaunchForm::Plain, &[vec![a], vec![a], vec![a], vec![5]], stream);
        kernels::launch(unknown, LaunchForm::Plain, &[vec![b]], stream);
        let snapshot = session.snapshot();
        assert!(uses(&snapshot, MIB).known_last().is_none() && !uses(&snapshot, MIB + 1).is_unused());
        let work = snapshot.gpu_work.as_ref().unwrap();
        assert_eq!(
            work.opaque.iter().map(|(id, count)| (work.kernel(*id), *count)).collect::<Vec<_>>(),
            [("unknown", 1)]
        );
        kernels::launch(unknown, LaunchForm::Buffer, &[vec![b]], stream);
        assert_eq!(uses(&session.snapshot(), MIB + 1).known_last().unwrap().operation, 3, "a buffer needs no layout");
    });
}

#[test]
fn a_cubin_says_the_parameters_of_its_kernels() {
    on_gpu(&[], || {
        let session = record();
        let owned = new_stream();
        let stream = owned.cu_stream();
        let add = kernels::function(kernels::load_binary(include_bytes!("cubins/sm_90.cubin")), "add");
        let [a, b, c] = [MIB, MIB + 1, MIB + 2].map(|size| raw::alloc_async(size, stream).unwrap());
        kernels::launch(add, LaunchForm::Plain, &[vec![a], vec![b + 8], vec![a], vec![5]], stream);
        let snapshot = session.snapshot();
        assert_eq!([MIB, MIB + 1].map(|size| span(&snapshot, size)), [(1, 1, 1); 2]);
        assert!(uses(&snapshot, MIB + 2).is_unused());
        raw::free_async(c, stream).unwrap();
        assert_eq!(session.snapshot().gpu_work.as_ref().unwrap().totals.laid_out, 1);
    });
}

#[test]
fn nodes_of_a_graph_are_uses_at_each_launch() {
    on_gpu(&[], || {
        let session = record();
        let owned = new_stream();
        let stream = owned.cu_stream();
        let add = kernels::function(kernels::load(PTX), "add");
        let [a, b, c] = [MIB, MIB + 1, MIB + 2].map(|size| raw::alloc_async(size, stream).unwrap());
        raw::begin_capture(stream, RELAXED).unwrap();
        kernels::launch(add, LaunchForm::Plain, &[vec![a], vec![a], vec![b], vec![5]], stream);
        let inner = raw::alloc_async(MIB + 3, stream).unwrap();
        kernels::copy(inner, b, 100, stream);
        raw::free_async(inner, stream).unwrap();
        let graph = raw::end_capture(stream).unwrap();
        assert_eq!(span(&session.snapshot(), MIB), (0, 0, 0), "nothing ran yet");
        let program = raw::instantiate(graph, 0).unwrap();
        raw::launch(program, stream).unwrap();
        kernels::fill(c, 10, stream);
        raw::launch(program, stream).unwrap();
        let snapshot = session.snapshot();
        assert_eq!([MIB, MIB + 1, MIB + 2].map(|size| span(&snapshot, size)), [(1, 3, 2), (1, 3, 2), (2, 2, 1)]);
        let inner = uses(&snapshot, MIB + 3);
        assert_eq!((inner.count, inner.freed_at), (1, Some(3)));
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        assert!(gpu.records.iter().any(|record| record.memory == MemoryKind::Graph));
        let totals = snapshot.gpu_work.as_ref().unwrap().totals;
        assert_eq!((totals.graphs, totals.launches, totals.laid_out, totals.copies), (2, 2, 2, 2));
    });
}

#[test]
fn a_graph_from_before_the_recording_is_opaque() {
    on_gpu(&[], || {
        let owned = new_stream();
        let stream = owned.cu_stream();
        raw::begin_capture(stream, RELAXED).unwrap();
        let before = raw::instantiate(raw::end_capture(stream).unwrap(), 0).unwrap();
        let session = record();
        raw::alloc_async(MIB, stream).unwrap();
        raw::launch(before, stream).unwrap();
        let snapshot = session.snapshot();
        assert!(!uses(&snapshot, MIB).is_unused());
        assert_eq!(snapshot.gpu_work.as_ref().unwrap().opaque_operations(), 1);
    });
}

#[test]
fn tensor_maps_and_textures_hide_no_block() {
    on_gpu(&[], || {
        let session = record();
        let owned = new_stream();
        let stream = owned.cu_stream();
        let tiles = kernels::function(kernels::load(PTX), "tiles");
        let [a, b] = [MIB, MIB + 1].map(|size| raw::alloc_async(size, stream).unwrap());
        #[repr(align(64))]
        struct Map([u64; 16]);
        let mut map = Map([0; 16]);
        let (sizes, strides, tile, steps) = ([64u64, 64], [256u64], [16u32, 16], [1u32, 1]);
        // SAFETY: all arrays are as long as the rank says.
        kernels::check(unsafe {
            sys::cuTensorMapEncodeTiled(
                (&raw mut map).cast(),
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                2,
                a as *mut _,
                sizes.as_ptr(),
                strides.as_ptr(),
                tile.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        });
        assert!(!map.0.contains(&a), "a map does not show its address");
        kernels::launch(tiles, LaunchForm::Plain, &[map.0.to_vec(), vec![b]], stream);
        let snapshot = session.snapshot();
        assert_eq!((span(&snapshot, MIB), span(&snapshot, MIB + 1)), ((1, 1, 1), (1, 1, 1)));
        kernels::launch(tiles, LaunchForm::Plain, &[vec![9; 16], vec![b]], stream);
        assert!(uses(&session.snapshot(), MIB).known_last().is_none(), "this map is not known");
    });
}

#[test]
fn a_write_before_anything_reads_is_dead() {
    on_gpu(&[], || {
        let session = record();
        let owned = new_stream();
        let stream = owned.cu_stream();
        let a = raw::alloc_async(MIB, stream).unwrap();
        kernels::fill(a, MIB, stream);
        kernels::upload(a, &vec![0; MIB / 8], stream);
        let snapshot = session.snapshot();
        let dead = uses(&snapshot, MIB).dead_write.unwrap();
        let work = snapshot.gpu_work.as_ref().unwrap();
        let names = (work.kernel(dead.first), work.kernel(dead.second));
        assert_eq!((dead.bytes, names), (MIB as u64, ("cuMemsetD8Async", "cuMemcpyHtoDAsync_v2")));
    });
}

/// What a recording says of each block, without numbers of stacks.
fn told(data: &SnapshotData) -> Vec<(u64, u64, Option<u64>, String, String)> {
    let gpu = data.device(Device::Cuda(0)).unwrap();
    let work = data.gpu_work.as_ref().unwrap();
    let told = gpu.uses.iter().map(|uses| {
        let last = uses.known_last();
        let kernel = last.map_or("", |last| work.kernel(last.kernel)).to_owned();
        let line = last.and_then(|last| data.stacks.frames(last.stack).next());
        (
            uses.seq.get(),
            uses.count,
            uses.freed_at,
            kernel,
            line.map_or("", |frame| frame.function_or_empty()).to_owned(),
        )
    });
    told.collect()
}

#[test]
fn a_streamed_capture_has_the_uses_of_freed_and_live_blocks() {
    on_gpu(&[], || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("uses.memtrace");
        let session = memtrace::builder().uses(true).stream(path.to_str().unwrap()).start().unwrap();
        let owned = new_stream();
        let stream = owned.cu_stream();
        let module = kernels::load(PTX);
        let (add, tiles) = (kernels::function(module, "add"), kernels::function(module, "tiles"));
        let kept = raw::alloc_async(MIB, stream).unwrap();
        for step in 0..6 {
            let temporary = raw::alloc_async(MIB + step, stream).unwrap();
            kernels::launch(add, LaunchForm::Plain, &[vec![kept], vec![temporary], vec![0], vec![5]], stream);
            // Some steps are flushed by themselves.
            std::thread::sleep(std::time::Duration::from_millis(60));
            raw::free_async(temporary, stream).unwrap();
        }
        kernels::launch(tiles, LaunchForm::Plain, &[vec![kept; 16], vec![0]], stream);
        let snapshot = session.snapshot();
        drop(session);
        let read = memtrace::open(&path).unwrap();
        assert_eq!(told(&read), told(&snapshot));
        assert_eq!(read.gpu_work, snapshot.gpu_work);
        assert_eq!((read.devices[1].uses.len(), read.devices[1].uses[0].count), (7, 7));
        assert!(read.settings.uses);
    });
}

/// The log has the newest blocks, with all that the recording says of them; one that lives all the time has the uses of the whole run.
#[test]
fn parts_of_a_stream_have_the_uses_of_their_blocks() {
    on_gpu(&[], || {
        const STEPS: usize = 2000;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("uses.memtrace");
        let builder = memtrace::builder().uses(true).stream(path.to_str().unwrap());
        let session = builder.stream_budget(256 << 10).start().unwrap();
        let owned = new_stream();
        let stream = owned.cu_stream();
        let add = kernels::function(kernels::load(PTX), "add");
        let kept = raw::alloc_async(MIB, stream).unwrap();
        for step in 0..STEPS {
            let temporary = raw::alloc_async(MIB + step % 7, stream).unwrap();
            kernels::launch(add, LaunchForm::Plain, &[vec![kept], vec![temporary], vec![0], vec![5]], stream);
            raw::free_async(temporary, stream).unwrap();
            if step % 50 == 0 {
                session.flush();
            }
        }
        let snapshot = session.snapshot();
        drop(session);
        assert!(!folder.path().join("uses.1.memtrace").exists(), "nothing was deleted");
        let read = memtrace::open(&path).unwrap();
        let (all, newest) = (told(&snapshot), told(&read));
        assert_eq!((all.len(), all[0].1), (1 + STEPS, STEPS as u64));
        assert_eq!(newest[0], all[0], "the block that lives all the time");
        let gpu = read.device(Device::Cuda(0)).unwrap();
        assert!(gpu.overwritten > 0 && gpu.records.len() > 100, "{} records", gpu.records.len());
        assert_eq!(newest[1..], all[all.len() + 1 - newest.len()..]);
        assert!(newest.len() >= gpu.records.len() / 2, "{} blocks of {} records", newest.len(), gpu.records.len());
    });
}
