//! Hostile chunks with valid checksums: decompression bombs and sums that overflow.

use super::tests::bytes_of;
use super::*;
use crate::snapshot::SnapshotData;

const LARGEST: u64 = (1 << 62) - 1;

struct CaptureFile(Vec<u8>);

impl CaptureFile {
    fn new() -> Self {
        Self([&MAGIC[..], &VERSION.to_le_bytes()].concat())
    }

    fn chunk(mut self, tag: Tag, fill: impl FnOnce(&mut bytes::Payload)) -> Self {
        let mut payload = bytes::Payload::default();
        fill(&mut payload);
        self.0.extend_from_slice(&chunk_head(tag as u8, &payload.bytes));
        self.0.extend_from_slice(&payload.bytes);
        self
    }

    fn numbers(self, tag: Tag, numbers: &[u64]) -> Self {
        self.chunk(tag, |p| numbers.iter().for_each(|n| p.raw(*n)))
    }

    fn read(self) -> Result<SnapshotData, String> {
        let file = self.numbers(Tag::Commit, &[0; 12]);
        read(&file.0).map(|capture| capture.data).map_err(|error| error.to_string())
    }

    fn refused(self, word: &str) {
        let error = self.read().unwrap_err();
        assert!(error.contains(word), "{word}: {error}");
    }
}

/// A part may claim to begin later than its records. Older times are those before its beginning.
#[test]
fn older_times_of_a_part_are_the_same_after_writing_it_again() {
    // Times are written as twice their difference.
    for (lost, from, older) in [(0, 20, 0), (1, 20, 1), (1, 60, 0)] {
        let file = CaptureFile::new().numbers(Tag::Gap, &[0, lost]).numbers(Tag::LogStart, &[0, 0, 30]);
        let file = file.numbers(Tag::Live, &[0, 0]).numbers(Tag::Older, &[0, 1, from, 20, 3, 0, 7, 1, 0]);
        let data = file.read().unwrap();
        assert_eq!(data.devices[0].older.len(), older);
        assert_eq!(read(&bytes_of(&data)).unwrap().data, data);
    }
}

/// Names of kernels, without the work that they did.
#[test]
fn a_file_with_kernels_alone_is_the_same_after_writing_it_again() {
    let data = CaptureFile::new().numbers(Tag::Kernels, &[0]).read().unwrap();
    assert!(data.settings.uses && data.gpu_work.is_some());
    assert_eq!(read(&bytes_of(&data)).unwrap().data, data);
}

/// A sampled block of one byte may have a weight of a gigabyte.
#[test]
fn weights_of_sampled_blocks_can_be_added() {
    let end = |current| [&[0, 0, 0, 0, 0, 0, 0, 0, current][..], &[0; 18]].concat();
    let file = |current| {
        let file = CaptureFile::new().numbers(Tag::Settings, &[0; 9]).numbers(Tag::Sampling, &[1 << 30]);
        file.numbers(Tag::Live, &[0, 1, 4096 << 1, 1, 2, 0, 0, 0, 0, 0]).numbers(Tag::Counters, &end(current))
    };
    let read = file(LARGEST - (1 << 31) - 2).read().unwrap();
    assert_eq!(read.devices[0].sampling.bytes(read.devices[0].live[0].size), (1 << 30) + 1);
    file(LARGEST - (1 << 31) - 1).refused("beyond");
}

/// PyTorch's pickle has a list for every device up to the highest.
#[test]
fn a_device_beyond_any_machine_is_refused() {
    CaptureFile::new().numbers(Tag::Gap, &[4 + 1024, 0]).refused("device");
    for known in [1024, 1025, 1026, 1027] {
        assert!(CaptureFile::new().numbers(Tag::Gap, &[known, 0]).numbers(Tag::Live, &[known, 0]).read().is_ok());
    }
}

#[test]
fn missing_records_of_all_devices_together_can_be_added() {
    let file = CaptureFile::new().numbers(Tag::Gap, &[0, LARGEST]).numbers(Tag::Live, &[0, 0]);
    assert!(CaptureFile(file.0.clone()).read().is_ok());
    file.numbers(Tag::Gap, &[1, 1]).numbers(Tag::Live, &[1, 0]).refused("beyond");
}

#[test]
fn older_times_are_few_and_in_order() {
    let times = |numbers: &[u64]| {
        CaptureFile::new().numbers(Tag::Gap, &[0, 9]).numbers(Tag::Live, &[0, 0]).numbers(Tag::Older, numbers)
    };
    // For each: steps to begin and end, number of records, whether some are missing, the highest, the step to its time,
    // no stacks.
    let first = [20, 20, 3, 0, 7, 1, 0];
    assert_eq!(times(&[&[0, 1][..], &first].concat()).read().unwrap().devices[0].older[0].to_ns, 20);
    times(&[0, 1, 20, 20, 3, 0, 7, 2, 0]).refused("out of order");
    times(&[0, 1, 20, 1, 3, 0, 7, 0, 0]).refused("out of order");
    times(&[&[0, 2][..], &first, &[2, 0, 3, 0, 7, 0, 0]].concat()).read().unwrap();
    times(&[&[0, 2][..], &first, &[0, 2, 3, 0, 7, 0, 0]].concat()).refused("out of order");
    times(&[0, 1, 0, 0, 3, 0, LARGEST + 1, 0, 0]).refused("beyond");
    let many = |count: u64| [vec![0, count], vec![0; 7 * count as usize]].concat();
    assert_eq!(times(&many(256)).read().unwrap().devices[0].older.len(), 256);
    times(&many(257)).refused("more older times");
    let scopes = |numbers| times(&many(2)).numbers(Tag::OlderScopes, numbers);
    assert_eq!(scopes(&[0, 2, 0, 1, 0, 7, 9]).read().unwrap().devices[0].older[1].scopes[0].at_highest, 9);
    scopes(&[0, 1, 0]).refused("scopes of other times");
    scopes(&[0, 2, 0, 1, 1, 7, 9]).refused("context number out of range");
    scopes(&[0, 2, 0, 1, 0, 7, LARGEST + 1]).refused("beyond");
}

#[test]
fn a_block_ends_where_memory_does() {
    let live =
        |address: u64, size| CaptureFile::new().numbers(Tag::Live, &[0, 1, address << 1, size, 2, 0, 0, 0, 0, 0]);
    assert!(live(LARGEST - 8, 8).read().is_ok());
    live(LARGEST - 8, 9).refused("beyond");
    live(LARGEST, 0).refused("beyond");
    CaptureFile::new().numbers(Tag::Segments, &[0, 1, LARGEST << 1, 1, 0]).refused("beyond");
}

#[test]
fn a_pool_belongs_to_a_segment() {
    let file = || CaptureFile::new().numbers(Tag::Segments, &[0, 1, 4096 << 1, 1, 0]);
    let read = file().numbers(Tag::PrivatePools, &[0, 1, 0, 7, 8]).read().unwrap();
    assert_eq!(read.devices[0].segments[0].pool, Some((7, 8)));
    file().numbers(Tag::PrivatePools, &[0, 1, 1, 7, 8]).refused("unknown segment");
}

#[test]
fn totals_of_scopes_stay_in_range() {
    let counters = |current| [&[0; 8][..], &[current], &[0; 18]].concat();
    assert!(CaptureFile::new().numbers(Tag::Counters, &counters(LARGEST - 1)).read().is_ok());
    CaptureFile::new().numbers(Tag::Counters, &counters(LARGEST)).refused("beyond");
}

#[test]
fn segments_lie_in_memory_and_times_add_up() {
    let segment = |address: u64, size| {
        CaptureFile::new().numbers(Tag::SegmentRecords, &[0, 1, 2, address << 1, size, 3, 0, 0, 1])
    };
    assert!(segment(1 << 52, LARGEST - (1 << 52)).read().is_ok());
    segment(1 << 52, LARGEST - (1 << 52) + 1).refused("beyond");
    let calls = |last| CaptureFile::new().numbers(Tag::Calls, &[0, 1, 0, 0, 1, LARGEST - 5, 1, 1, 1, last]);
    assert!(calls(1).read().is_ok());
    calls(2).refused("beyond");
    let live = |stream| CaptureFile::new().numbers(Tag::Live, &[0, 1, 0, 5, 2, 0, 0, 0, 0, stream]);
    live(10).refused("kind of memory");
    live(1 << 36).refused("stream number");
    CaptureFile::new().numbers(Tag::Records, &[0, 1, 10 << 2, 0, 0, 5, 0, 0, 0, 0, 2, 0]).refused("kind of memory");
}

#[test]
fn numbers_of_dropped_names_can_be_added() {
    let file = CaptureFile::new().numbers(Tag::Names, &[0, LARGEST, 0]);
    assert!(CaptureFile(file.0.clone()).read().is_ok());
    file.numbers(Tag::Names, &[0, 1, 0]).refused("beyond");
}

#[test]
fn a_scope_occurs_once() {
    let contexts =
        |file: CaptureFile| file.chunk(Tag::Contexts, |p| p.bytes.extend_from_slice(&[2, 0, 1, b'a', 0, 1, b'b']));
    let scopes = |first, second| [&[0, 2, first][..], &[0; 5], &[second], &[0; 5]].concat();
    assert!(contexts(CaptureFile::new()).numbers(Tag::Scopes, &scopes(1, 2)).read().is_ok());
    contexts(CaptureFile::new()).numbers(Tag::Scopes, &scopes(1, 1)).refused("twice");
}

#[test]
fn the_largest_rank_comes_back() {
    let mut data = crate::snapshot::testing::empty();
    data.process.rank = Some(u32::MAX);
    let mut bytes = Vec::new();
    write(&data, usize::MAX, &mut bytes).unwrap();
    assert_eq!(read(&bytes).unwrap().data.process.rank, Some(u32::MAX));
}

#[test]
fn what_the_launcher_says_comes_back_and_costs_nothing_where_it_says_nothing() {
    use crate::snapshot::Launcher;
    let written = |launcher| {
        let mut data = crate::snapshot::testing::empty();
        data.process.launcher = launcher;
        let mut bytes = Vec::new();
        write(&data, usize::MAX, &mut bytes).unwrap();
        bytes
    };
    for launcher in [
        Launcher { world_size: Some(8), job: Some("12.0".into()) },
        Launcher { world_size: Some(u32::MAX), job: None },
        Launcher { world_size: None, job: Some("ü".into()) },
    ] {
        assert_eq!(read(&written(launcher.clone())).unwrap().data.process.launcher, launcher);
        assert!(written(launcher).len() > written(Launcher::default()).len());
    }
    let none = written(Launcher::default());
    let mut tags = Vec::new();
    let mut at = super::HEADER;
    while at < none.len() {
        tags.push(none[at]);
        at += super::CHUNK_HEADER + u64::from_le_bytes(none[at + 1..at + 9].try_into().unwrap()) as usize;
    }
    assert!(!tags.contains(&(Tag::Launcher as u8)) && tags.contains(&(Tag::End as u8)), "{tags:?}");
}

/// The paths of such deep scopes would exceed any memory.
#[test]
fn deeply_nested_scopes_are_refused() {
    let chain = |depth: u64| {
        CaptureFile::new().chunk(Tag::Contexts, |p| {
            p.raw(depth);
            for parent in 0..depth {
                p.raw(parent << 1);
                p.text("");
            }
        })
    };
    assert!(chain(1000).read().is_ok());
    chain(5000).refused("deep");
    let long = "x".repeat(100_000);
    let wide = CaptureFile::new().chunk(Tag::Contexts, |p| {
        p.raw(20_000);
        (0..20_000).for_each(|n| {
            p.raw(u64::from(n > 0) << 1);
            p.text(if n == 0 { &long } else { "" });
        });
    });
    wide.refused("text");
}

/// Many stacks with a hundred calls each, all to one address with many long frames.
#[test]
fn stacks_with_far_more_text_than_bytes_are_refused() {
    let long = "x".repeat(10_000);
    let file = CaptureFile::new().numbers(Tag::Addresses, &[1, 2]).chunk(Tag::Stacks, |p| {
        p.raw(1000);
        (0..1000).for_each(|_| [&[100][..], &[0; 100]].concat().into_iter().for_each(|n| p.raw(n)));
    });
    let frames = file.chunk(Tag::Frames, |p| {
        p.raw(1);
        p.text(&long);
        p.raw(100);
        (0..100).for_each(|_| p.bytes.extend_from_slice(&[0, 0, 0]));
    });
    frames.refused("text");
}

#[test]
fn addresses_after_the_frames_have_no_frames() {
    let file = CaptureFile::new().numbers(Tag::Addresses, &[1, 2]).chunk(Tag::Frames, |p| {
        p.bytes.extend_from_slice(&[1, 1, b'f', 1, 0, 0, 2]);
    });
    let data = file.numbers(Tag::Addresses, &[1, 4]).read().unwrap();
    let mut bytes = Vec::new();
    write(&data, usize::MAX, &mut bytes).unwrap();
    assert_eq!(read(&bytes).unwrap().data.stacks, data.stacks);
}

/// The objects of addresses are found by binary search.
#[test]
fn many_objects_and_many_addresses_take_no_time() {
    let file = CaptureFile::new().chunk(Tag::Objects, |p| {
        p.raw(4096);
        for n in 0..4096 {
            p.text("");
            p.list::<u8>(&[]);
            [0, n << 8, n << 8 | 1].into_iter().for_each(|n| p.raw(n));
        }
    });
    let file = file.chunk(Tag::Addresses, |p| {
        p.raw(1 << 20);
        (0..1 << 20).for_each(|_| p.raw(2));
    });
    assert_eq!(file.read().unwrap().stacks.addresses.len(), 1 << 20);
}
