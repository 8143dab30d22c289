//! Planted waste: the findings name the line and the kernel, and the peak of the program that follows them, to the byte.

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUfunction, CUstream};
use memtrace::analysis::{Waste, WasteKind, idle_memory, waste};
use memtrace::report::findings;
use memtrace::{Device, DeviceView, Failure, NoWaste, Snapshot};

use super::kernels;
use super::support::on_gpu;

const MIB: usize = 1 << 20;
const PTX: &[u8] = b".version 9.0\n.target sm_90\n.address_size 64\n\
    .visible .entry add(.param .u64 a, .param .u64 b)\n{ ret; }\n\
    .visible .entry norm(.param .u64 a, .param .u64 b)\n{ ret; }\n";

#[derive(Clone, Copy)]
struct Gpu {
    stream: CUstream,
    add: CUfunction,
    norm: CUfunction,
}

// Macros, so that the lines of a program are those that allocate and launch.

#[collapse_debuginfo(yes)]
macro_rules! alloc {
    ($gpu:expr, $size:expr) => {{
        let mut address = 0;
        // SAFETY: the output is a local variable.
        kernels::check(unsafe { sys::cuMemAllocAsync(&mut address, $size, $gpu.stream) });
        address
    }};
}

#[collapse_debuginfo(yes)]
macro_rules! free {
    ($gpu:expr, $address:expr) => {
        // SAFETY: the block is live.
        kernels::check(unsafe { sys::cuMemFreeAsync($address, $gpu.stream) })
    };
}

#[collapse_debuginfo(yes)]
macro_rules! launch {
    ($gpu:expr, $kernel:ident, $a:expr, $b:expr) => {{
        let (a, b): (u64, u64) = ($a, $b);
        let mut arguments = [(&raw const a).cast_mut().cast(), (&raw const b).cast_mut().cast()];
        let (parameters, none) = (arguments.as_mut_ptr(), std::ptr::null_mut());
        let Gpu { $kernel: kernel, stream, .. } = $gpu;
        // SAFETY: kernels do not run; the arguments are valid for the call.
        kernels::check(unsafe { sys::cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, none) });
    }};
}

/// The recording of a program on a GPU of its own.
fn record(program: impl FnOnce(Gpu)) -> Snapshot {
    let session = memtrace::builder().uses(true).start().unwrap();
    on_stream(program);
    session.snapshot()
}

fn on_stream(program: impl FnOnce(Gpu)) {
    let context = CudaContext::new(0).unwrap();
    let owned = context.new_stream().unwrap();
    let module = kernels::load(PTX);
    let [add, norm] = ["add", "norm"].map(|name| kernels::function(module, name));
    program(Gpu { stream: owned.cu_stream(), add, norm });
}

fn peak(snapshot: &Snapshot) -> u64 {
    snapshot.device(Device::Cuda(0)).unwrap().peak.bytes
}

fn wastes(snapshot: &Snapshot) -> Vec<Waste> {
    waste(&DeviceView::of(snapshot, snapshot.device(Device::Cuda(0)).unwrap()))
}

fn kinds(snapshot: &Snapshot) -> Vec<&'static str> {
    findings(&DeviceView::of(snapshot, snapshot.device(Device::Cuda(0)).unwrap()))
        .iter()
        .map(|finding| finding.kind.word())
        .collect()
}

/// The number of the line in this file that a row names.
fn line(text: &str) -> u32 {
    let (_, rest) = text.split_once("uses_waste.rs:").unwrap_or_else(|| panic!("{text:?} is no line of this file"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// A value of a layer that the function keeps to its end.
fn held_in_a_function(gpu: Gpu, cured: bool) -> (u32, u32) {
    let allocated = line!() + 1;
    let hidden = alloc!(gpu, 8 * MIB);
    let out = alloc!(gpu, 3 * MIB + 5);
    let used = line!() + 1;
    launch!(gpu, norm, hidden, out);
    if cured {
        free!(gpu, hidden);
    }
    let next = alloc!(gpu, 6 * MIB);
    launch!(gpu, add, out, next);
    free!(gpu, next);
    free!(gpu, out);
    if !cured {
        free!(gpu, hidden);
    }
    (allocated, used)
}

struct Model {
    weights: u64,
    table: u64,
}

/// A structure holds a table that only its constructor needs; two calls, as of two layers.
fn held_in_a_structure(gpu: Gpu, cured: bool) {
    let new = |gpu: Gpu| {
        let model = Model { weights: alloc!(gpu, 4 * MIB), table: alloc!(gpu, 5 * MIB) };
        launch!(gpu, add, model.table, model.weights);
        if cured {
            free!(gpu, model.table);
        }
        model
    };
    let models = [new(gpu), new(gpu)];
    let x = alloc!(gpu, 2 * MIB);
    models.iter().for_each(|model| launch!(gpu, norm, model.weights, x));
    free!(gpu, x);
    for model in models {
        free!(gpu, model.weights);
        if !cured {
            free!(gpu, model.table);
        }
    }
}

fn never_used(gpu: Gpu, cured: bool) {
    let spare = if cured { 0 } else { alloc!(gpu, 7 * MIB) };
    let x = alloc!(gpu, 2 * MIB);
    launch!(gpu, add, x, x);
    free!(gpu, x);
    if !cured {
        free!(gpu, spare);
    }
}

/// A block that is needed after the peak only.
fn too_early(gpu: Gpu, cured: bool) {
    let early = if cured { 0 } else { alloc!(gpu, 7 * MIB) };
    let large = alloc!(gpu, 9 * MIB);
    launch!(gpu, add, large, large);
    free!(gpu, large);
    let small = alloc!(gpu, MIB);
    free!(gpu, small);
    let early = if cured { alloc!(gpu, 7 * MIB) } else { early };
    launch!(gpu, norm, early, early);
    free!(gpu, early);
}

#[test]
fn a_value_held_after_its_last_use_is_named_with_both_lines_and_the_exact_peak() {
    on_gpu(&[], || {
        let mut lines = (0, 0);
        let kept = record(|gpu| lines = held_in_a_function(gpu, false));
        let cured = record(|gpu| _ = held_in_a_function(gpu, true));
        let [found] = &wastes(&kept)[..] else { panic!("{:?}", wastes(&kept)) };
        assert_eq!((found.kind, found.bytes, found.kernel.as_str()), (WasteKind::PastLastUse, 8 << 20, "norm"));
        assert_eq!((line(&found.line), line(&found.use_line)), lines);
        assert_eq!((found.peak_without, found.saves), (peak(&cured), peak(&kept) - peak(&cured)));
        assert!(peak(&cured) < peak(&kept));
        assert_eq!((kinds(&kept), wastes(&cured)), (vec!["past_last_use"], vec![]));
        assert!(kinds(&cured).is_empty());
        let report = kept.report().to_string();
        let then = format!("The peak would be {}", memtrace::Bytes(peak(&cured)));
        assert!(report.contains("`drop(x)` on the next line"), "{report}");
        assert!(report.contains(&then) && report.contains("of 100.0 % of the bytes"), "{report}");
    });
}

#[test]
fn every_kind_of_waste_is_found_and_its_cure_has_the_predicted_peak() {
    type Program = fn(Gpu, bool);
    let programs: [(Program, WasteKind); 3] = [
        (held_in_a_structure, WasteKind::PastLastUse),
        (never_used, WasteKind::NeverUsed),
        (too_early, WasteKind::Early),
    ];
    on_gpu(&[], || {
        for (program, kind) in programs {
            let (kept, cured) = (record(|gpu| program(gpu, false)), record(|gpu| program(gpu, true)));
            let found = wastes(&kept);
            assert_eq!(found.iter().map(|row| row.kind).collect::<Vec<_>>(), [kind], "{found:?}");
            assert_eq!(found[0].peak_without, peak(&cured), "{found:?}");
            assert_eq!((wastes(&cured), kinds(&cured).len()), (vec![], 0), "{kind:?}");
        }
    });
}

/// A value that is used at both ends of a long computation. `cured` keeps it on the host meanwhile.
fn idle_at_the_peak(gpu: Gpu, cured: bool) {
    let value = alloc!(gpu, 8 * MIB);
    launch!(gpu, add, value, value);
    if cured {
        free!(gpu, value);
    }
    let x = alloc!(gpu, 5 * MIB);
    (0..20).for_each(|_| launch!(gpu, norm, x, x));
    free!(gpu, x);
    let y = alloc!(gpu, MIB);
    let value = if cured { alloc!(gpu, 8 * MIB) } else { value };
    launch!(gpu, add, value, y);
    free!(gpu, y);
    free!(gpu, value);
}

#[test]
fn an_idle_block_is_named_with_the_exact_peak_of_the_program_that_moves_it() {
    on_gpu(&[], || {
        let (kept, cured) = (record(|gpu| idle_at_the_peak(gpu, false)), record(|gpu| idle_at_the_peak(gpu, true)));
        let rows =
            |snapshot: &Snapshot| idle_memory(&DeviceView::of(snapshot, snapshot.device(Device::Cuda(0)).unwrap()));
        let [found] = &rows(&kept)[..] else { panic!("{:?}", rows(&kept)) };
        assert_eq!((found.bytes, found.operations, found.kernel.as_str()), (8 << 20, 20, "add"));
        assert_eq!((found.peak_without, found.saves), (peak(&cured), peak(&kept) - peak(&cured)));
        assert_eq!((kinds(&kept), kinds(&cured)), (vec!["idle"], vec![]));
        assert!(kept.report().to_string().contains("   Possible: the blocks are idle"), "{}", kept.report());
    });
}

/// Runs a program as an assertion's code.
fn asserted(limit: &NoWaste, program: impl FnOnce(Gpu)) -> Result<(), Failure> {
    limit.run(|| on_stream(program))
}

#[test]
fn the_assertion_fails_with_the_advice_and_passes_once_it_is_followed() {
    on_gpu(&[], || {
        let limit = NoWaste::new().limit("1 MiB");
        let failure = asserted(&limit, |gpu| _ = held_in_a_function(gpu, false)).unwrap_err();
        let text = failure.to_string();
        assert!(failure.is_violation() && failure.snapshot().is_some(), "{text}");
        for part in
            ["8.000 MiB (8,388,608 bytes) of the peak", "past the last use", "uses_waste.rs:", "The peak would be"]
        {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        asserted(&limit, |gpu| _ = held_in_a_function(gpu, true)).unwrap();
        let unused = asserted(&limit, |gpu| never_used(gpu, false)).unwrap_err().to_string();
        assert!(unused.contains("7.000 MiB  never used"), "{unused}");
        asserted(&NoWaste::new().limit("7 MiB"), |gpu| never_used(gpu, false)).unwrap();
        memtrace::assert_no_waste!("1 MiB", on_stream(|gpu| never_used(gpu, true)));
        let none = NoWaste::new().limit("1 MiB").device(Device::Cuda(7)).run(|| ()).unwrap_err();
        assert!(!none.is_violation() && none.to_string().contains("no memory of cuda:7 was recorded"), "{none}");
        assert!(NoWaste::new().run(|| ()).unwrap_err().to_string().contains("give a limit"));
    });
}

#[test]
fn a_baseline_of_waste_is_stored_and_more_waste_fails() {
    // Baselines are stored beside the source file, here in an empty package.
    let package = tempfile::tempdir().unwrap();
    let source = package.path().join(file!());
    std::fs::create_dir_all(source.parent().unwrap()).unwrap();
    std::fs::write(source, "").unwrap();
    let folder = package.path().to_str().unwrap();
    on_gpu(&[("CI", "0"), ("MEMTRACE_UPDATE_BASELINES", "0"), ("CARGO_MANIFEST_DIR", folder)], || {
        let limit = || NoWaste::new().baseline("spare");
        asserted(&limit(), |gpu| never_used(gpu, true)).unwrap();
        let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap();
        let file = std::fs::read_to_string(format!("{folder}/tests/cuda/uses_waste.peaks.txt")).unwrap();
        assert!(file.contains("cuda:0 (waste)"), "{file}");
        let more = asserted(&limit(), |gpu| never_used(gpu, false)).unwrap_err();
        assert!(more.is_violation() && more.to_string().contains("its baseline of 0 B"), "{more}");
        asserted(&limit(), |gpu| never_used(gpu, true)).unwrap();
    });
}

#[test]
fn zeros_that_an_upload_overwrites_are_found() {
    on_gpu(&[], || {
        let program = |zeros: bool| {
            record(|gpu| {
                let x: u64 = alloc!(gpu, 2 * MIB);
                if zeros {
                    kernels::fill(x, 2 * MIB, gpu.stream);
                }
                kernels::upload(x, &vec![1; 2 * MIB / 8], gpu.stream);
                launch!(gpu, add, x, x);
                free!(gpu, x);
            })
        };
        assert_eq!((kinds(&program(true)), kinds(&program(false))), (vec!["written_twice"], vec![]));
    });
}
