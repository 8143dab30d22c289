//! Modules and libraries that are loaded from files and from fat binaries: their kernels' parameters are known as those of
//! images in memory are. (`cuda.h`, "Loads a compute module", "Load a module's data", "Load a library with specified file and
//! options": a file is PTX, a cubin or a fat binary.)

use std::ffi::{CString, c_void};
use std::path::Path;
use std::ptr::null_mut;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUfunction, CUmodule, CUresult};
use memtrace::{Device, Session};

use super::kernels::{self, LaunchForm};
use super::raw;
use super::support::on_gpu;

const CUBIN: &[u8] = include_bytes!("cubins/sm_90.cubin");
/// A cubin as it is, and compressed PTX.
const FAT_BINARY: &[u8] = include_bytes!("cubins/kernels.fatbin");

fn load(path: &Path) -> Result<CUmodule, CUresult> {
    let (mut module, path) = (null_mut(), CString::new(path.to_str().unwrap()).unwrap());
    // SAFETY: the output is a local variable; the path ends with a zero byte.
    match unsafe { sys::cuModuleLoad(&mut module, path.as_ptr()) } {
        CUresult::CUDA_SUCCESS => Ok(module),
        refused => Err(refused),
    }
}

fn of_file(path: &Path) -> CUfunction {
    kernels::function(load(path).unwrap(), "add")
}

fn of_library(path: &Path) -> CUfunction {
    let (mut library, mut kernel, mut function) = (null_mut(), null_mut(), null_mut());
    let path = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the output is a local variable; the path ends with a zero byte; there are no options.
    kernels::check(unsafe {
        let none = null_mut::<c_void>();
        sys::cuLibraryLoadFromFile(
            &mut library,
            path.as_ptr(),
            none.cast(),
            none.cast(),
            0,
            none.cast(),
            none.cast(),
            0,
        )
    });
    // SAFETY: the output is a local variable; the name ends with a zero byte.
    kernels::check(unsafe { sys::cuLibraryGetKernel(&mut kernel, library, c"add".as_ptr()) });
    // SAFETY: the output is a local variable.
    kernels::check(unsafe { sys::cuKernelGetFunction(&mut function, kernel) });
    function
}

fn of_fat_binary(image: &[u8]) -> CUfunction {
    let mut module = null_mut();
    // SAFETY: the output is a local variable; the image is as long as it says.
    kernels::check(unsafe { sys::cuModuleLoadFatBinary(&mut module, image.as_ptr().cast()) });
    kernels::function(module, "add")
}

/// Launches `add` on a new block: launches so far, and how many of them had known parameters.
fn launch(session: &Session, function: CUfunction) -> (u64, u64) {
    let block = raw::alloc_async(1000, raw::PER_THREAD).unwrap();
    kernels::launch(function, LaunchForm::Plain, &[vec![block], vec![0], vec![0], vec![5]], raw::PER_THREAD);
    let snapshot = session.snapshot();
    let gpu = snapshot.device(Device::Cuda(0)).unwrap();
    let last = gpu.live.last().unwrap();
    let totals = snapshot.gpu_work.as_ref().unwrap().totals;
    let is_known = gpu.uses_of(last.seq).unwrap().known_last().is_some();
    assert_eq!(is_known, totals.laid_out == totals.launches, "{totals:?}");
    (totals.launches, totals.laid_out)
}

#[test]
fn modules_and_libraries_from_files_say_the_parameters_of_their_kernels() {
    on_gpu(&[], || {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let session = memtrace::builder().uses(true).start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        for (name, image) in [("a.cubin", CUBIN), ("a.fatbin", FAT_BINARY)] {
            std::fs::write(path(name), image).unwrap();
        }
        assert_eq!(launch(&session, of_file(&path("a.cubin"))), (1, 1));
        assert_eq!(launch(&session, of_file(&path("a.fatbin"))), (2, 2));
        assert_eq!(launch(&session, of_library(&path("a.cubin"))), (3, 3));
        assert_eq!(launch(&session, of_library(&path("a.fatbin"))), (4, 4));
        // A relative path, and a recording that writes a file itself.
        std::env::set_current_dir(folder.path()).unwrap();
        assert_eq!(launch(&session, of_file(Path::new("a.cubin"))), (5, 5));
        drop(session);
        let session = memtrace::builder().uses(true).stream("uses.memtrace").start().unwrap();
        assert_eq!(launch(&session, of_file(Path::new("a.cubin"))), (1, 1));
    });
}

#[test]
fn fat_binaries_in_memory_say_the_parameters_of_their_kernels() {
    on_gpu(&[], || {
        let session = memtrace::builder().uses(true).start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        assert_eq!(launch(&session, of_fat_binary(FAT_BINARY)), (1, 1));
        let module = kernels::load_binary(FAT_BINARY);
        assert_eq!(launch(&session, kernels::function(module, "add")), (2, 2));
    });
}

#[test]
fn a_file_that_is_not_read_is_loaded_all_the_same() {
    on_gpu(&[], || {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let session = memtrace::builder().uses(true).start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        assert_eq!(load(&path("none")).unwrap_err(), CUresult::CUDA_ERROR_FILE_NOT_FOUND);
        // Larger than what is read.
        std::fs::write(path("large.cubin"), CUBIN).unwrap();
        std::fs::File::options().write(true).open(path("large.cubin")).unwrap().set_len((64 << 20) + 1).unwrap();
        assert_eq!(launch(&session, of_file(&path("large.cubin"))), (1, 0));
        // A pipe can be read once only.
        let pipe = CString::new(path("pipe").to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        let function = std::thread::scope(|scope| {
            scope.spawn(|| std::fs::write(path("pipe"), CUBIN).unwrap());
            of_file(&path("pipe"))
        });
        assert_eq!(launch(&session, function), (2, 0));
    });
}
