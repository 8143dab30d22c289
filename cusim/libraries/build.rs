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
        ("nvrtc", "nvrtc"),
    ] {
        write_stubs(library, prefix, &Path::new("examples").join(format!("{library}.rs")));
    }
}
