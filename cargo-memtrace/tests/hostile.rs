//! Hostile snapshots: refused with exit code 2, and in little memory. The only test of its program, because the kernel tells the
//! most memory of all children together.

#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use nix::sys::resource::{UsageWho, getrusage};

/// Peak memory of a command that refuses a hostile file.
const MOST_KIB: i64 = 64 << 10;
/// Bytes that are written at once.
const CHUNK: usize = 1 << 16;

/// A file, made of parts that are repeated, and a word of its refusal.
type Hostile = (&'static str, &'static str, Vec<(Vec<u8>, usize)>);

fn once(bytes: &[u8]) -> (Vec<u8>, usize) {
    (bytes.to_vec(), 1)
}

fn repeated(bytes: &[u8], times: usize) -> (Vec<u8>, usize) {
    (bytes.to_vec(), times)
}

fn text(text: &str) -> Vec<u8> {
    [&[0x8c, text.len() as u8][..], text.as_bytes()].concat()
}

/// A dict of texts; its last value is what follows.
fn begun_dict(items: &[(&str, &[u8])], last: &str) -> Vec<u8> {
    let items = items.iter().flat_map(|(key, value)| [text(key), value.to_vec()]).flatten();
    [b"}(".to_vec(), items.collect(), text(last)].concat()
}

fn files() -> Vec<Hostile> {
    let long = [&b"\x80\x04\x8d"[..], &(1_u64 << 40).to_le_bytes(), b"abc."].concat();
    let size = [b'J', 0, 0, 0xff, 0x7f];
    let segment = begun_dict(&[("address", &size), ("total_size", &size)], "blocks");
    let block = [begun_dict(&[("size", b"K\x01")], "state"), text("active_allocated"), b"u".to_vec()].concat();
    let frame = [begun_dict(&[("name", &text("f"))], "filename"), text("f.py"), b"u".to_vec()].concat();
    let block_of_frames = begun_dict(&[("state", &text("active_allocated"))], "frames");
    let top = |inner: &[u8]| [b"\x80\x04", &*begun_dict(&[], "segments"), b"](", inner].concat();
    vec![
        ("os_system.pickle", "GLOBAL is refused", vec![once(b"\x80\x02cos\nsystem\n(Vecho\ntR.")]),
        (
            "stack_global.pickle",
            "STACK_GLOBAL is refused",
            vec![once(b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04echo\x85R.")],
        ),
        (
            "deep.pickle",
            "memory",
            vec![once(b"\x80\x02"), repeated(b"]", 1_000_000), repeated(b"a", 999_999), once(b".")],
        ),
        ("tuples.pickle", "too deep", vec![once(b"\x80\x02N"), repeated(b"\x85", 5000), once(b".")]),
        ("length.pickle", "ends in the middle", vec![once(&long)]),
        ("cycle.pickle", "holds itself", vec![once(b"\x80\x02]q\x00]h\x00aa.")]),
        ("memo.pickle", "memory", vec![once(b"\x80\x02Nr\xff\xff\xff\xff.")]),
        (
            "one_block.pickle",
            "two places",
            vec![
                once(&top(&[&*segment, b"](", &block, b"q\x00"].concat())),
                repeated(b"h\x00", 100_000),
                once(b"euq\x01"),
                repeated(b"h\x01", 100_000),
                once(b"eu."),
            ],
        ),
        (
            "calls.pickle",
            "memory",
            vec![
                once(&top(&[&*block_of_frames, b"](", &frame, b"q\x00"].concat())),
                repeated(b"h\x00", 2_000_000),
                once(b"eueu."),
            ],
        ),
        ("nothing.pickle.gz", "memory", vec![once(b"\x80\x04("), repeated(b"N", 40 << 20)]),
        ("lists.pickle.gz", "memory", vec![once(b"\x80\x04("), repeated(b"]", 20 << 20)]),
        ("memoized.pickle.gz", "memory", vec![once(b"\x80\x04("), repeated(b"]\x94", 10 << 20)]),
    ]
}

/// Writes the parts without ever holding them: the memory of this process counts for its children.
fn write(path: &Path, parts: &[(Vec<u8>, usize)]) {
    let file = BufWriter::new(File::create(path).unwrap());
    let put = |out: &mut dyn Write| {
        for (bytes, times) in parts {
            let at_once = (CHUNK / bytes.len()).clamp(1, *times);
            let chunk = bytes.repeat(at_once);
            (0..times / at_once).for_each(|_| out.write_all(&chunk).unwrap());
            out.write_all(&bytes.repeat(times % at_once)).unwrap();
        }
        out.flush().unwrap();
    };
    if path.extension().is_some_and(|it| it == "gz") {
        let mut packed = GzEncoder::new(file, Compression::fast());
        put(&mut packed);
        packed.finish().unwrap();
    } else {
        put(&mut { file });
    }
}

#[test]
fn hostile_snapshots_are_refused_in_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    for (name, why, parts) in files() {
        let path = folder.path().join(name);
        write(&path, &parts);
        let output = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"))
            .args(["memtrace", "report"])
            .arg(&path)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {error}");
        assert!(error.contains(why), "{name}: {error}");
        let most = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss();
        println!("{name}: at most {most} KiB so far: {}", error.trim());
        assert!(most < MOST_KIB, "{name}: {most} KiB");
    }
}
