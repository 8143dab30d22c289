//! Seeds for the fuzz targets: captures of real recordings of each kind, whole and cut in the middle. They contain
//! paths of this machine, so each user creates new ones.

use std::path::Path;

use memtrace::{Builder, Error, Snapshot, StackContext, scope};

use crate::hostile::input_of;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Names and inputs of `capture_of`. The process must have memtrace's allocator and no other recording.
pub fn seeds() -> Outcome<Vec<(String, Vec<u8>)>> {
    let folder = tempfile::tempdir()?;
    let mut seeds = Vec::new();
    for (name, capture) in captures(folder.path())? {
        let files = files(&capture)?;
        seeds.push((format!("{name}-half"), without_files(input_of(&capture[..capture.len() / 2]), &files)));
        seeds.push((name.to_owned(), without_files(input_of(&capture), &files)));
    }
    Ok(seeds)
}

/// Inputs of the two newest parts of a stream with a budget, the older one first.
pub fn parts() -> Outcome<[Vec<u8>; 2]> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let builder = memtrace::builder().min_size(1 << 20).context(StackContext::All);
    let session = builder.stream(path("run.memtrace").display().to_string()).stream_budget(96 << 10).start()?;
    while !path("run.3.memtrace").exists() {
        (0..50).for_each(|_| scope("outer", || drop(std::hint::black_box(vec![1u8; 1 << 20]))));
        session.flush();
    }
    session.end()?;
    let part = |number: u64| -> Outcome<Vec<u8>> {
        let capture = std::fs::read(path(&format!("run.{number}.memtrace")))?;
        Ok(without_files(input_of(&capture), &files(&capture)?))
    };
    Ok([part(2)?, part(3)?])
}

/// The input of `parts_of`.
pub fn input_of_parts([older, newest]: [&[u8]; 2]) -> Vec<u8> {
    [&(older.len() as u16).to_le_bytes(), older, newest].concat()
}

/// A complete snapshot, a snapshot whose log lost its beginning, a sampled one, a stream, and a stream with gaps.
fn captures(folder: &Path) -> Outcome<Vec<(&'static str, Vec<u8>)>> {
    let small = || memtrace::builder().min_size(256);
    Ok(vec![
        ("whole", snapshot(small().context(StackContext::All), folder)?),
        ("overwritten", snapshot(small().max_entries(16), folder)?),
        ("sampled", snapshot(memtrace::builder().sample_interval(4096), folder)?),
        ("streamed", stream(small(), folder)?),
        ("skipped", stream(small().max_entries(4), folder)?),
    ])
}

fn stream(builder: Builder, folder: &Path) -> Outcome<Vec<u8>> {
    let path = folder.join("stream");
    let session = builder.stream(path.display().to_string()).start()?;
    work();
    session.flush();
    work();
    session.end()?;
    let capture = std::fs::read(&path)?;
    std::fs::remove_file(path)?;
    Ok(capture)
}

fn snapshot(builder: Builder, folder: &Path) -> Outcome<Vec<u8>> {
    let path = folder.join("snapshot.memtrace");
    let session = builder.start()?;
    work();
    session.snapshot().write(&path)?;
    session.end()?;
    let capture = std::fs::read(&path)?;
    std::fs::remove_file(path)?;
    Ok(capture)
}

/// The paths and build-ids in the capture.
fn files(capture: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let snapshot = Snapshot::parse(capture)?;
    let names = snapshot
        .objects
        .iter()
        .flat_map(|module| [module.path.as_deref().unwrap_or_default().as_bytes(), &module.build_id]);
    Ok(names.filter(|name| name.len() > 8).map(<[u8]>::to_vec).collect())
}

/// Replaces paths with missing ones of the same length, because reading debug information would take nearly all the
/// time.
fn without_files(mut input: Vec<u8>, files: &[Vec<u8>]) -> Vec<u8> {
    for file in files {
        let places = input.windows(file.len()).enumerate().filter(|(_, part)| part == file);
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        places.into_iter().for_each(|place| input[place..place + file.len()].fill(b'x'));
    }
    input
}

/// Allocates some blocks that stay and some that are freed, in scopes.
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
