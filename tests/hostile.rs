//! Captures with valid checksums and invalid contents are either refused or safe to use. The fuzz targets search for
//! counterexamples at length.

#[path = "support/hostile.rs"]
#[expect(unreachable_pub, reason = "also what the fuzz targets share")]
mod hostile;
#[path = "../fuzz/src/pickles.rs"]
#[expect(unreachable_pub, reason = "also what the fuzz targets share")]
mod pickles;
#[path = "support/random.rs"]
mod random;
#[path = "support/seeds.rs"]
#[expect(unreachable_pub, reason = "also what the fuzz targets share")]
mod seeds;

use std::io::Read;
use std::path::Path;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use hostile::{capture_of, input_of, parts_of, read_and_use, read_and_use_parts};
use memtrace::{Builder, Snapshot, StackContext, scope};
use proptest::prelude::*;
use seeds::input_of_parts;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// Real captures, as inputs of [`capture_of`].
struct Inputs {
    whole: Vec<u8>,
    /// Of a sample, whose blocks are large enough to be the test's own; half of them are certain to be sampled.
    sampled: Vec<u8>,
    /// The two newest parts of a real stream with a budget, the older one first.
    parts: [Vec<u8>; 2],
    seeds: Vec<(String, Vec<u8>)>,
}

/// Every test asks for these first, so they are recorded while no test works: its blocks would be in them, and make chunks
/// longer than an input can say.
static INPUTS: LazyLock<Inputs> = LazyLock::new(|| Inputs {
    whole: recorded(512, memtrace::builder()),
    sampled: recorded(1 << 20, memtrace::builder().sample_interval(4 << 20)),
    parts: seeds::parts().unwrap(),
    seeds: seeds::seeds().unwrap(),
});

fn recorded(smallest: usize, builder: Builder) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.memtrace");
    let session = builder.min_size(smallest).context(StackContext::All).start().unwrap();
    let kept: Vec<Vec<u8>> = (0..4).map(|n| scope("outer", || scope("inner", || vec![1; smallest << n]))).collect();
    let named = kept.iter().filter(|block| memtrace::name(block.as_ptr(), "kept")).count();
    assert!(named >= 2, "{named}");
    drop(std::hint::black_box(kept));
    session.snapshot().write(&path).unwrap();
    input_of(&std::fs::read(path).unwrap())
}

/// A change of the input.
#[derive(Clone, Copy, Debug)]
enum Change {
    Set(u8),
    Add(u8),
    Insert(u8),
    Remove,
    /// Overwrites the bytes of a number with a large number or a small step.
    Large(u8),
}

fn change() -> impl Strategy<Value = (prop::sample::Index, Change)> {
    let what = prop_oneof![
        any::<u8>().prop_map(Change::Set),
        prop_oneof![Just(1), Just(255), Just(2), Just(64)].prop_map(Change::Add),
        any::<u8>().prop_map(Change::Insert),
        Just(Change::Remove),
        prop_oneof![Just(0x3f), Just(0x7f)].prop_map(Change::Large),
    ];
    (any::<prop::sample::Index>(), what)
}

/// The chunks of the input with their payloads: each change stays within a chunk.
fn chunks(input: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let (mut chunks, mut rest) = (Vec::new(), input);
    while let Some((&[tag, low, high], after)) = rest.split_first_chunk() {
        let (payload, next) = after.split_at(usize::from(u16::from_le_bytes([low, high])));
        chunks.push((tag, payload.to_vec()));
        rest = next;
    }
    chunks
}

fn changed(payload: &mut Vec<u8>, at: prop::sample::Index, change: Change) {
    let at = at.index(payload.len() + 1);
    let here = at..(at + 1).min(payload.len());
    let large = |top| [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, top];
    let (range, bytes) = match change {
        Change::Set(byte) => (here, vec![byte]),
        Change::Add(by) => {
            let byte = payload.get(at).copied().unwrap_or(0);
            (here, vec![byte.wrapping_add(by)])
        }
        Change::Insert(byte) => (at..at, vec![byte]),
        Change::Remove => (here, vec![]),
        Change::Large(top) => (here, large(top).to_vec()),
    };
    payload.splice(range, bytes);
}

fn input(chunks: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let of = |(tag, payload): &(u8, Vec<u8>)| [&[*tag], &(payload.len() as u16).to_le_bytes()[..], payload].concat();
    chunks.iter().flat_map(of).collect()
}

proptest! {
    #![proptest_config(random::programs(256))]

    #[test]
    fn payloads_may_contain_anything(
        changes in prop::collection::vec((any::<prop::sample::Index>(), change()), 1..4),
        again in prop::option::of(any::<prop::sample::Index>()),
        sampled in any::<bool>(),
    ) {
        let mut chunks = chunks(if sampled { &INPUTS.sampled } else { &INPUTS.whole });
        for (chunk, (at, change)) in changes {
            let chunk = chunk.index(chunks.len());
            changed(&mut chunks[chunk].1, at, change);
        }
        if let Some(again) = again {
            let chunk = chunks[again.index(chunks.len())].clone();
            chunks.push(chunk);
        }
        read_and_use(&capture_of(&input(&chunks)));
    }

    #[test]
    fn parts_may_contain_anything(
        changes in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), change()), 1..4),
    ) {
        let mut parts = INPUTS.parts.each_ref().map(|part| chunks(part));
        for (newest, chunk, (at, change)) in changes {
            let part = &mut parts[usize::from(newest)];
            let chunk = chunk.index(part.len());
            changed(&mut part[chunk].1, at, change);
        }
        let [older, newest] = parts.map(|chunks| input(&chunks));
        read_and_use_parts(&parts_of(&input_of_parts([&older, &newest])));
    }
}

/// Else nothing that the cutter makes would be read.
#[test]
fn a_capture_without_chunks_is_accepted() {
    assert!(Snapshot::parse(&capture_of(&[])).is_ok());
}

#[test]
fn the_unchanged_parts_are_one_recording() {
    let [older, newest] = &INPUTS.parts;
    let records = |parts: [&[u8]; 2]| {
        let snapshot = read_and_use_parts(&parts_of(&input_of_parts(parts))).unwrap();
        snapshot.devices[0].records.len()
    };
    assert!(records([older, newest]) > records([&[], newest]));
}

#[test]
fn the_unchanged_capture_is_accepted() {
    let capture = capture_of(&INPUTS.whole);
    // The test harness allocates meanwhile, so only this file's scope counts.
    let snapshot = Snapshot::parse(&capture).unwrap();
    assert_eq!(snapshot.devices[0].records.iter().filter(|r| r.context != Default::default()).count(), 8);
    read_and_use(&capture);
    let sampled = capture_of(&INPUTS.sampled);
    assert!(Snapshot::parse(&sampled).unwrap().devices[0].sampling.is_on());
    read_and_use(&sampled);
}

#[test]
fn the_fuzzers_seeds_are_accepted() {
    let seeds = &INPUTS.seeds;
    for (name, input) in seeds {
        println!("{name}");
        let capture = capture_of(input);
        assert!(name.ends_with("-half") || Snapshot::parse(&capture).is_ok(), "{name} is read");
        read_and_use(&capture);
    }
    assert_eq!(seeds.len(), 10);
}

/// Does what a fuzz target does with this input.
fn fuzz(target: &str, input: &[u8]) {
    match target {
        "capture_bytes" => read_and_use(input),
        "capture_chunks" => read_and_use(&capture_of(input)),
        "capture_parts" => _ = read_and_use_parts(&parts_of(input)),
        "pickle_bytes" => read_and_use(&[&[0x80, 4], input].concat()),
        "pickle_words" => read_and_use(&pickles::pickle_of(input)),
        _ => panic!("{target} is no fuzz target"),
    }
}

/// The inputs that together reach all code that fuzzing has reached. With `MEMTRACE_CASES` all of them, else every tenth.
#[test]
fn what_fuzzing_found_is_refused_or_safe() {
    LazyLock::force(&INPUTS);
    let step = if std::env::var_os("MEMTRACE_CASES").is_some() { 1 } else { 10 };
    let packed = std::fs::File::open("fuzz/corpus.tar.gz").unwrap();
    let mut used = std::collections::BTreeMap::<String, u32>::new();
    let mut archive = tar::Archive::new(GzDecoder::new(packed));
    let files = archive.entries().unwrap().map(Result::unwrap).filter(|entry| entry.header().entry_type().is_file());
    for mut file in files.step_by(step) {
        let path = file.path().unwrap().into_owned();
        let target = path.parent().and_then(Path::file_name).unwrap().to_str().unwrap().to_owned();
        let mut input = Vec::new();
        file.read_to_end(&mut input).unwrap();
        println!("{}", path.display());
        fuzz(&target, &input);
        *used.entry(target).or_default() += 1;
    }
    assert!(used.len() == 5 && used.values().all(|count| *count > 10), "{used:?}");
}
