//! The stand-in libraries: they export all names, and find the driver as NVIDIA's do.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "libraries are called through C")]

#[path = "../../tests/support/mod.rs"]
mod support;

use std::ffi::{CStr, c_char};

use support::{Driver, in_child};

/// Loads the library that cargo built as an example.
fn load(name: &str) -> Driver {
    let executable = std::env::current_exe().unwrap();
    let folder = executable.parent().unwrap().parent().unwrap().join("examples");
    Driver::load_file(folder.join(format!("libmemtrace_cusim_{name}.so")))
}

#[test]
fn every_name_is_there() {
    in_child("every_name_is_there", &[], || {
        for (name, list) in [
            ("cublas", include_str!("../symbols/cublas.txt")),
            ("curand", include_str!("../symbols/curand.txt")),
            ("cudart", include_str!("../symbols/cudart.txt")),
            ("cublaslt", include_str!("../symbols/cublaslt.txt")),
            ("nccl", include_str!("../symbols/nccl.txt")),
            ("nvml", include_str!("../symbols/nvidia-ml.txt")),
            ("nvrtc", include_str!("../symbols/nvrtc.txt")),
        ] {
            let library = load(name);
            for function in list.lines() {
                let function = std::ffi::CString::new(function).unwrap();
                assert_ne!(library.address(&function), 0, "{name}: {function:?}");
            }
        }
    });
}

#[test]
fn cublas_allocates_its_workspace_from_the_driver() {
    let variables = [("MEMTRACE_CUSIM_CUBLAS_WORKSPACE", "4194304")];
    in_child("cublas_allocates_its_workspace_from_the_driver", &variables, || {
        let (driver, cublas) = (Driver::start(), load("cublas"));
        let (mut handle, mut free, mut total) = (0, 0, 0);
        assert_eq!(cublas.cublas_create(&mut handle), 0);
        assert_eq!((driver.memory(&mut free, &mut total), total - free), (0, 4 << 20));
        assert_eq!(cublas.cublas_destroy(handle), 0);
        assert_eq!((driver.memory(&mut free, &mut total), total - free), (0, 0));
    });
}

#[test]
fn the_runtime_allocates_from_the_driver() {
    in_child("the_runtime_allocates_from_the_driver", &[], || {
        let (driver, runtime) = (Driver::load(), load("cudart"));
        let (mut address, mut read) = (0, [0; 3]);
        assert_eq!(runtime.cuda_malloc_async(&mut address, 1000, 0), 0);
        assert_eq!(runtime.cuda_memset(address, 7, 3), 0);
        assert_eq!((driver.to_host(read.as_mut_ptr(), address, 3), read), (0, [7; 3]));
        assert_eq!((runtime.cuda_free(address), runtime.cuda_free(address)), (0, 1));
        assert_eq!((runtime.cuda_last_error(), runtime.cuda_last_error()), (1, 0));
    });
}

#[test]
fn the_runtime_knows_the_device_in_the_structs_of_cuda_12_and_13() {
    let variables = [("MEMTRACE_CUSIM_MEMORY", "24GiB"), ("MEMTRACE_CUSIM_NAME", "A10G")];
    in_child("the_runtime_knows_the_device_in_the_structs_of_cuda_12_and_13", &variables, || {
        let (driver, runtime) = (Driver::start(), load("cudart"));
        let (mut old, mut new, mut multiprocessors) = ([1; 258], [1; 252], 0);
        assert_eq!((runtime.cuda_properties_12(&mut old, 0), runtime.cuda_properties_13(&mut new, 0)), (0, 0));
        assert_eq!(driver.device_attribute(&mut multiprocessors, 16, 0), 0);
        for (properties, at) in [(&old[..], 388), (&new[..], 384)] {
            assert_eq!(properties[0].to_le_bytes(), *b"A10G");
            assert_eq!((properties[288 / 4], properties[292 / 4]), (0, 6), "24 GiB in 64 bits");
            assert_eq!((properties[360 / 4], properties[364 / 4]), (9, 0), "the capability");
            assert_eq!(properties[at / 4], multiprocessors as u32);
        }
        assert_ne!(runtime.cuda_properties_13(&mut new, 7), 0, "there is no such device");
    });
}

#[test]
fn the_runtime_says_what_an_address_is() {
    in_child("the_runtime_says_what_an_address_is", &[], || {
        let (_driver, runtime) = (Driver::start(), load("cudart"));
        let (mut device, mut pinned, mut found) = (0, 0, [0; 3]);
        assert_eq!(runtime.cuda_malloc_async(&mut device, 1000, 0), 0);
        assert_eq!(runtime.cuda_host_alloc(&mut pinned, 1000, 0), 0);
        assert_eq!((runtime.cuda_pointer(&mut found, device), found), (0, [2, device, 0]));
        assert_eq!(runtime.cuda_pointer(&mut found, pinned), 0);
        assert_eq!((found[0], found[2]), (1, pinned));
        let own = &raw const found as u64;
        assert_eq!(runtime.cuda_pointer(&mut found, own), 0);
        assert_eq!(found, [u64::from((-2_i32) as u32) << 32, 0, own]);
    });
}

#[test]
fn the_runtime_captures_and_launches_a_graph() {
    in_child("the_runtime_captures_and_launches_a_graph", &[], || {
        let (_driver, runtime) = (Driver::start(), load("cudart"));
        let (mut stream, mut block, mut graph, mut executable) = (0, 0, 0, 0);
        let (mut status, mut id, mut known, mut nodes) = (0, 0, 0, 0);
        assert_eq!(runtime.cuda_stream(&mut stream, 1, 0), 0);
        assert_eq!(runtime.cuda_begin_capture(stream, 0), 0);
        assert_eq!(runtime.cuda_malloc_async(&mut block, 1000, stream), 0);
        assert_eq!(runtime.cuda_capture_info(stream, &mut status, &mut id, &mut known, 0, &mut nodes), 0);
        assert_eq!((status, known != 0, nodes), (1, true, 1));
        assert_eq!(runtime.cuda_end_capture(stream, &mut graph), 0);
        assert_eq!(runtime.cuda_instantiate(&mut executable, graph, 0), 0);
        assert_eq!(runtime.cuda_graph_launch(executable, stream), 0);
    });
}

#[test]
fn the_management_library_knows_the_devices_by_number_and_by_bus() {
    type ByBus = extern "C" fn(*const c_char, &mut usize) -> u32;
    let variables = [("MEMTRACE_CUSIM_DEVICES", "2")];
    in_child("the_management_library_knows_the_devices_by_number_and_by_bus", &variables, || {
        let (_driver, library) = (Driver::start(), load("nvml"));
        let (mut count, mut first, mut second) = (0, 0, 0);
        assert_eq!((library.nvml_count(&mut count), count), (0, 2));
        assert_eq!((library.nvml_device(0, &mut first), library.nvml_device(1, &mut second)), (0, 0));
        assert_eq!((first, second, library.nvml_device(2, &mut first)), (1, 2, 2));
        // SAFETY: the function has this type.
        let by_bus =
            unsafe { std::mem::transmute::<usize, ByBus>(library.address(c"nvmlDeviceGetHandleByPciBusId_v2")) };
        for (name, code, device) in [(c"0000:02:00.0", 0, 2), (c"00000000:01:00.0", 0, 1), (c"0000:03:00.0", 6, 1)] {
            assert_eq!((by_bus(name.as_ptr(), &mut first), first), (code, device), "{name:?}");
        }
    });
}

#[test]
fn the_runtime_looks_up_the_drivers_functions() {
    in_child("the_runtime_looks_up_the_drivers_functions", &[], || {
        let (driver, runtime) = (Driver::start(), load("cudart"));
        let (mut function, mut found) = (0, 9);
        assert_eq!(runtime.cuda_entry_point(c"cuMemCreate".as_ptr(), &mut function, 0, &mut found), 0);
        assert_eq!((function, found), (driver.address(c"cuMemCreate"), 0));
    });
}

/// An id of NCCL's, by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

#[test]
fn ranks_of_nccl_meet_and_take_buffers_from_the_driver() {
    type Make = extern "C" fn(*mut UniqueId) -> u32;
    type Join = extern "C" fn(*mut u64, i32, UniqueId, i32) -> u32;
    type Reduce = extern "C" fn(u64, u64, usize, u32, u32, u64, u64) -> u32;
    type Leave = extern "C" fn(u64) -> u32;
    in_child("ranks_of_nccl_meet_and_take_buffers_from_the_driver", &[], || {
        let (driver, nccl) = (Driver::start(), load("nccl"));
        // SAFETY: here and below: the function has this type.
        let make = unsafe { std::mem::transmute::<usize, Make>(nccl.address(c"ncclGetUniqueId")) };
        // SAFETY: as above.
        let join = unsafe { std::mem::transmute::<usize, Join>(nccl.address(c"ncclCommInitRank")) };
        // SAFETY: as above.
        let reduce = unsafe { std::mem::transmute::<usize, Reduce>(nccl.address(c"ncclAllReduce")) };
        // SAFETY: as above.
        let leave = unsafe { std::mem::transmute::<usize, Leave>(nccl.address(c"ncclCommDestroy")) };
        let used = || {
            let (mut free, mut total) = (0, 0);
            assert_eq!(driver.memory(&mut free, &mut total), 0);
            total - free
        };
        let (before, mut id) = (used(), UniqueId([0; 128]));
        assert_eq!(make(&mut id), 0);
        let rank = |rank| {
            driver.enter(0);
            let (mut communicator, mut buffer) = (0, 0);
            assert_eq!(join(&mut communicator, 3, id, rank), 0);
            assert_eq!(driver.alloc(&mut buffer, 4096), 0);
            assert_eq!(reduce(buffer, buffer, 1024, 7, 0, communicator, 0), 0);
            assert_eq!(driver.free(buffer), 0);
            communicator
        };
        let all = std::thread::scope(|threads| {
            let all = [0, 1, 2].map(|number| threads.spawn(move || rank(number)));
            all.map(|thread| thread.join().unwrap())
        });
        assert_eq!(used() - before, 3 * 2 * 2 * (10_485_760 + 2_097_152), "ranks, others, channels, buffers");
        assert_eq!(all.map(|communicator| leave(communicator)), [0; 3]);
        assert_eq!(used(), before);
        let mut communicator = 0;
        assert_eq!(
            [join(&mut communicator, 2, id, 2), join(&mut communicator, 2, id, 0)],
            [4, 2],
            "a bad rank, and no id"
        );
    });
}

/// The PTX of a program, or the result code.
fn compiled(nvrtc: &Driver, source: &CStr) -> Result<String, u32> {
    type Create = extern "C" fn(*mut u64, *const c_char) -> u32;
    type Compile = extern "C" fn(u64) -> u32;
    type Size = extern "C" fn(u64, *mut usize) -> u32;
    type Text = extern "C" fn(u64, *mut u8) -> u32;
    let (mut program, mut size) = (0, 0);
    // SAFETY: here and below: the function has this type.
    let create = unsafe { std::mem::transmute::<usize, Create>(nvrtc.address(c"nvrtcCreateProgram")) };
    assert_eq!(create(&mut program, source.as_ptr()), 0);
    // SAFETY: as above.
    let compile = unsafe { std::mem::transmute::<usize, Compile>(nvrtc.address(c"nvrtcCompileProgram")) };
    match compile(program) {
        0 => {}
        error => return Err(error),
    }
    // SAFETY: as above.
    let size_of = unsafe { std::mem::transmute::<usize, Size>(nvrtc.address(c"nvrtcGetPTXSize")) };
    assert_eq!(size_of(program, &mut size), 0);
    let mut text = vec![0; size];
    // SAFETY: as above.
    let text_of = unsafe { std::mem::transmute::<usize, Text>(nvrtc.address(c"nvrtcGetPTX")) };
    assert_eq!((text_of(program, text.as_mut_ptr()), text.pop()), (0, Some(0)));
    Ok(String::from_utf8(text).unwrap())
}

#[test]
fn kernels_keep_their_names_and_parameters() {
    in_child("kernels_keep_their_names_and_parameters", &[], || {
        let nvrtc = load("nvrtc");
        let source = c"extern \"C\" __global__ void add(const float *a, float *b, int n) { b[0] = a[0]; }
            extern \"C\" __global__ void __launch_bounds__(256) fill(float *x) {}
            extern \"C\" __global__ void none() {}";
        let found = compiled(&nvrtc, source).unwrap();
        for entry in [
            ".entry add(.param .u64 add_param_0, .param .u64 add_param_1, .param .u64 add_param_2)",
            ".entry fill(.param .u64 fill_param_0)",
            ".entry none()",
        ] {
            assert!(found.contains(entry), "{found}");
        }
        let of_cpp = compiled(&nvrtc, c"template <typename T> __global__ void add(T *a) {}").unwrap();
        assert!(!of_cpp.contains(".entry"), "of such a module every name is accepted: {of_cpp}");
        assert!(
            compiled(&nvrtc, c"extern \"C\" {\n__global__ void add(float *a) {}\n}").unwrap().contains(".entry add(")
        );
        assert_eq!(compiled(&nvrtc, c"extern \"C\" __global__ void kernel("), Err(6));
    });
}
