//! Writes the seeds of both fuzz targets to `fuzz/corpus`.

use std::path::Path;

use candle_memtrace_fuzz::capture_of;
use candle_memtrace_fuzz::seeds::seeds;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, input) in seeds()? {
        for (target, bytes) in [("capture_bytes", capture_of(&input)), ("capture_chunks", input)] {
            std::fs::create_dir_all(corpus.join(target))?;
            std::fs::write(corpus.join(target).join(&name), bytes)?;
        }
    }
    Ok(())
}
