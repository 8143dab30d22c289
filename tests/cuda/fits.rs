//! Whether code fits on a GPU, asserted on a simulated one.

use cudarc::driver::CudaContext;
use memtrace::{Device, Fits};

use super::support::on_gpu;

const MIB: usize = 1 << 20;

/// What a GPU of unknown kind may take at least and at most beside the blocks, in MiB.
const BESIDE: (usize, usize) = (75, 1500);

fn hold(mib: usize) {
    let stream = CudaContext::new(0).unwrap().default_stream();
    drop(stream.alloc_zeros::<u8>(mib * MIB).unwrap());
    stream.synchronize().unwrap();
}

#[test]
fn code_fits_does_not_or_is_undecided() {
    on_gpu(&[("MEMTRACE_CUSIM_MEMORY", "1TiB")], || {
        assert_eq!(Fits::on("RTX 4090").run(|| hold(20_000)).map(|()| 7).unwrap(), 7);
        memtrace::assert_fits!("rtx-4090", reserve = "1 GiB", device = Device::Cuda(0), hold(20_000));
        let failure = Fits::on("RTX 4090").run(|| hold(24_000)).unwrap_err();
        let text = failure.to_string();
        assert!(failure.is_violation() && failure.snapshot().is_some(), "{text}");
        for part in ["RTX 4090 (23.52 GiB for CUDA): does not fit, ", "kernel stacks: ", "fits.rs:", "23.44 GiB"] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        // The rest of the card lies within what the process takes.
        let card = format!("{} MiB", 1000 + usize::midpoint(BESIDE.0, BESIDE.1) / 2);
        let failure = Fits::on(card).run(|| hold(1000)).unwrap_err();
        assert!(failure.is_undecided() && failure.to_string().contains("undecided, between "), "{failure}");
        assert!(Fits::on(format!("{} MiB", 1000 + BESIDE.1)).run(|| hold(1000)).is_ok());
        assert!(Fits::on(format!("{} MiB", 1000 + BESIDE.0)).run(|| hold(1000)).unwrap_err().is_violation());
    });
}

#[test]
fn without_a_gpu_or_a_known_card_nothing_is_said_to_fit() {
    on_gpu(&[], || {
        let none = Fits::on("T4").run(|| ()).unwrap_err();
        assert!(!none.is_violation() && none.to_string().contains("no memory of a GPU was recorded"), "{none}");
        let other = Fits::on("T4").device(Device::Cuda(1)).run(|| hold(1)).unwrap_err();
        assert!(other.to_string().contains("no memory of a GPU was recorded"), "{other}");
        let unknown = Fits::on("RTX 1").run(|| panic!("the code does not run")).unwrap_err();
        assert!(unknown.to_string().contains("no card \"RTX 1\" is known"), "{unknown}");
    });
}

/// What was refused is needed, too.
#[test]
fn code_that_was_refused_memory_is_undecided() {
    on_gpu(&[("MEMTRACE_CUSIM_MEMORY", "1GiB")], || {
        let refused = Fits::on("T4").run(|| {
            let stream = CudaContext::new(0).unwrap().default_stream();
            let _kept = stream.alloc_zeros::<u8>(MIB).unwrap();
            assert!(stream.alloc_zeros::<u8>(2000 * MIB).is_err());
        });
        let failure = refused.unwrap_err();
        assert!(failure.is_undecided() && failure.to_string().contains("was refused memory"), "{failure}");
    });
}
