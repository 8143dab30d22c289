//! Generates a stub for each function of `symbols/` that the library's source does not define.

include!("names.rs");

fn main() {
    for path in ["build.rs", "names.rs", "symbols", "examples"] {
        println!("cargo:rerun-if-changed={path}");
    }
    for (library, prefix) in [
        ("cublas", "cublas"),
        ("curand", "curand"),
        ("cudart", "cuda"),
        ("cublaslt", "cublasLt"),
        ("nccl", "nccl"),
        ("nvidia-ml", "nvml"),
        ("nvrtc", "nvrtc"),
    ] {
        let (folder, file) = (Path::new("examples").join(library), format!("examples/{library}.rs"));
        write_stubs(library, prefix, if folder.is_dir() { &folder } else { Path::new(&file) });
    }
}
