//! The stand-ins beside the driver: they exist in full, and reach the driver as NVIDIA's do.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "libraries are called through C")]

#[path = "../../tests/support/mod.rs"]
mod support;

use support::{Driver, in_child};

/// The library that cargo built as an example.
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
