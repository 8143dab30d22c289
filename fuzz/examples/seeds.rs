//! Seeds for the fuzz targets: captures of real recordings, written to `fuzz/corpus`. They name the
//! machine they were made on, so they are made anew rather than kept.

use std::fs;
use std::path::Path;

use candle_memtrace_fuzz::{capture_of, input_of};
use memtrace::{StackContext, parse_capture, scope};

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);

    let session = memtrace::builder().min_size(256).context(StackContext::All).start()?;
    work();
    session.snapshot().write_capture(path("whole"))?;
    session.end()?;

    let session = memtrace::builder().min_size(256).max_entries(16).start()?;
    work();
    session.snapshot().write_capture(path("overwritten"))?;
    session.end()?;

    let session = memtrace::builder().min_size(256).stream(path("streamed").display().to_string()).start()?;
    work();
    session.end()?;

    let session = memtrace::builder().sample_interval(4096).start()?;
    work();
    session.snapshot().write_capture(path("sampled"))?;
    session.end()?;

    for name in ["whole", "overwritten", "streamed", "sampled"] {
        let capture = fs::read(path(name))?;
        let files = files(&capture)?;
        seed(&corpus, name, &capture, &files)?;
        // Cut in the middle.
        seed(&corpus, &format!("{name}-half"), &capture[..capture.len() / 2], &files)?;
    }
    Ok(())
}

fn seed(corpus: &Path, name: &str, capture: &[u8], files: &[Vec<u8>]) -> Outcome {
    let input = without_files(input_of(capture), files);
    for (target, bytes) in [("capture_bytes", capture_of(&input)), ("capture_chunks", input)] {
        fs::create_dir_all(corpus.join(target))?;
        fs::write(corpus.join(target).join(name), bytes)?;
    }
    Ok(())
}

/// The files that the capture names, and their build-ids.
fn files(capture: &[u8]) -> Result<Vec<Vec<u8>>, memtrace::Error> {
    let snapshot = parse_capture(capture)?;
    let names = snapshot.modules.iter().flat_map(|module| [module.path.as_bytes(), &module.build_id]);
    Ok(names.filter(|name| name.len() > 8).map(<[u8]>::to_vec).collect())
}

/// Names files that are not there, by texts of the same length: to read the debug information of this
/// machine's would take nearly all the time.
fn without_files(mut input: Vec<u8>, files: &[Vec<u8>]) -> Vec<u8> {
    for file in files {
        let places = input.windows(file.len()).enumerate().filter(|(_, part)| part == file);
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        places.into_iter().for_each(|place| input[place..place + file.len()].fill(b'x'));
    }
    input
}

/// Some blocks that stay, some that go, in scopes.
fn work() {
    let mut kept = Vec::new();
    for step in 0..12usize {
        scope(["load", "forward", "backward"][step % 3], || {
            kept.push(vec![1u8; 300 + 100 * step]);
            scope("inner", || drop(std::hint::black_box(vec![2u8; 512])));
        });
        if step % 5 == 4 {
            kept.remove(0);
        }
    }
}
