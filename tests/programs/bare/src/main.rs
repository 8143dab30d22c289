//! Allocates known blocks at known sites and prints memtrace's report. `cargo xtask builds` checks the report of each
//! kind of build.

use std::hint::black_box;

use memtrace::DeviceView;
use memtrace::analysis::Key;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

mod layers {
    use std::hint::black_box;

    #[inline(never)]
    pub(crate) fn outer(bytes: usize) -> Vec<u8> {
        black_box(inner(bytes))
    }

    #[inline(never)]
    fn inner(bytes: usize) -> Vec<u8> {
        black_box(vec![1; bytes])
    }

    /// Allocates at the bottom of a recursion of this depth.
    #[inline(never)]
    pub(crate) fn recurse(depth: usize, bytes: usize) -> Vec<u8> {
        if depth == 0 { black_box(vec![2; bytes]) } else { black_box(recurse(black_box(depth - 1), bytes)) }
    }
}

fn main() {
    let session = memtrace::builder().min_size(4096).start().expect("nothing else records");
    let first = layers::outer(1 << 20);
    let second = memtrace::scope("deep", || layers::recurse(600, 3 << 20));
    let snapshot = session.snapshot();
    println!("{}", snapshot.report());
    let device = snapshot.device(memtrace::Device::Cpu).expect("the CPU is recorded");
    assert_eq!(device.live.iter().map(|block| block.size).sum::<u64>(), (1 << 20) + (3 << 20));
    assert_eq!(DeviceView::of(&snapshot, device).by(Key::Line).total, device.peak.total());
    let deep = device.live.iter().find(|block| block.size == 3 << 20).expect("it is live");
    println!("frames of the deep stack: {}", snapshot.stacks.addresses(deep.stack).count());
    println!("shortened: {}", snapshot.health.shortened_stacks);
    let program = snapshot.objects.first().expect("the program itself is loaded");
    println!("build-id bytes: {}", program.build_id.len());
    let named = snapshot.stacks.addresses.iter().filter(|a| a.object.is_some() && a.offset != 0);
    println!("module-relative addresses: {}", named.count());
    black_box((first, second));
}
