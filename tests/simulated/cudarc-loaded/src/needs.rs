//! Needs memory in the ways that make a verdict hard: `needs values` asks for more if what it reads back is not zero; `needs falling`
//! asks for SIZE times 256 MiB, but from 5 on for 256 MiB, as a program that changes its method; `needs endless` goes on until it reads zeros;
//! `needs integrated` asks for more where the GPU's memory is the host's.

use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED;
use cudarc::driver::{CudaContext, DriverError};

const MIB: usize = 1 << 20;

fn main() -> Result<(), DriverError> {
    let stream = CudaContext::new(0)?.default_stream();
    let mut blocks = vec![stream.alloc_zeros::<u32>(MIB)?];
    match std::env::args().nth(1).as_deref() {
        Some("values") => {
            if stream.clone_dtoh(&blocks[0])?.iter().any(|value| *value != 0) {
                blocks.push(stream.alloc_zeros(64 * MIB)?);
            }
        }
        Some("endless") => while stream.clone_dtoh(&blocks[0])?.iter().any(|value| *value != 0) {},
        Some("falling") => {
            let size: usize = std::env::var("SIZE").ok().and_then(|size| size.parse().ok()).expect("SIZE is a number");
            blocks.push(stream.alloc_zeros(if size < 5 { size } else { 1 } * 64 * MIB)?);
        }
        Some("integrated") => {
            if stream.context().attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED)? == 1 {
                blocks.push(stream.alloc_zeros(64 * MIB)?);
            }
        }
        _ => panic!("values, endless, falling or integrated"),
    }
    stream.synchronize()
}
