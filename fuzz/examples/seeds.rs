//! Writes the seeds of the fuzz targets to `fuzz/corpus`.

use std::path::Path;

use candle_memtrace_fuzz::capture_of;
use candle_memtrace_fuzz::seeds::{input_of_parts, parts, seeds};
use memtrace::export::{Export, Pickle};

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let [older, newest] = parts()?;
    std::fs::create_dir_all(corpus.join("capture_parts"))?;
    std::fs::write(corpus.join("capture_parts/two"), input_of_parts([&older, &newest]))?;
    for (name, input) in seeds()? {
        let capture = capture_of(&input);
        let mut seeds = Vec::new();
        // A capture that was cut in the middle may be refused.
        if let Ok(snapshot) = memtrace::Snapshot::parse(&capture) {
            let mut pickle = Vec::new();
            Pickle::default().write(&snapshot, &mut pickle)?;
            // The target adds the protocol.
            seeds.push(("pickle_bytes", pickle[2..].to_vec()));
        }
        seeds.extend([("capture_bytes", capture), ("capture_chunks", input)]);
        for (target, bytes) in seeds {
            std::fs::create_dir_all(corpus.join(target))?;
            std::fs::write(corpus.join(target).join(&name), bytes)?;
        }
    }
    Ok(())
}
