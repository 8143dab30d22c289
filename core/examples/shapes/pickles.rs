//! Shapes of PyTorch's snapshots, genuine and hostile ones.

use super::pickle::PickleWriter;

type MakePickle = fn(u64) -> Vec<u8>;

const FIRST: u64 = 1 << 28;
const PAGE: u64 = 2 << 20;

/// A stack that is written where it is used first.
struct SharedStack {
    frames: Vec<(String, String, u64)>,
    number: Option<u32>,
}

impl SharedStack {
    fn of(frames: Vec<(String, String, u64)>) -> Self {
        Self { frames, number: None }
    }

    /// These lines of one file, each a function.
    fn lines(lines: std::ops::Range<u64>) -> Self {
        Self::of(lines.map(|line| (format!("f{line}"), "a.py".to_owned(), line)).collect())
    }

    fn write(&mut self, p: &mut PickleWriter) {
        if let Some(number) = self.number {
            return p.recall(number);
        }
        p.list(|p| {
            for (name, file, line) in &self.frames {
                p.dict(|p| {
                    p.texts(&[("name", name), ("filename", file)]);
                    p.numbers(&[("line", *line)]);
                });
            }
        });
        self.number = Some(p.remember());
    }
}

pub(super) const SHAPES: &[(&str, MakePickle)] = &[
    ("outside", |n| {
        let far = |at: u64| FIRST + (at << 16) + 0x8000;
        let segments = |p: &mut PickleWriter| (0..n).for_each(|at| segment(p, FIRST + (at << 16), 512, &[(512, true)]));
        snapshot(segments, |p| {
            let mut one = SharedStack::lines(0..1);
            (0..n).for_each(|at| event(p, "alloc", far(at), 512, 2 * at, &mut one));
            (0..n).for_each(|at| event(p, "free_completed", far(at), 512, 2 * (n + at), &mut one));
        })
    }),
    ("mapped", |n| {
        log(|p| {
            let mut one = SharedStack::lines(0..1);
            (0..n).for_each(|at| event(p, "segment_map", FIRST + at * PAGE, PAGE, at, &mut one));
            (0..n).for_each(|at| event(p, "segment_unmap", FIRST, PAGE * n, n + at, &mut one));
        })
    }),
    ("blocks", |n| {
        let blocks: Vec<(u64, bool)> = (0..n).map(|at| (512, at % 2 == 1)).collect();
        snapshot(|p| segment(p, FIRST, 512 * n, &blocks), |_| ())
    }),
    ("frames", |n| {
        log(|p| {
            let mut all = SharedStack::lines(0..n);
            (0..100).for_each(|at| event(p, "alloc", FIRST + 512 * at, 512, at, &mut all));
        })
    }),
    // Stacks, each a frame longer than the one before: together so many frames.
    ("prefixes", |n| {
        let most = (2 * n).isqrt();
        log(|p| {
            (0..most).for_each(|at| event(p, "alloc", FIRST + 512 * at, 512, at, &mut SharedStack::lines(0..at + 1)))
        })
    }),
    ("chain", |n| {
        log(|p| {
            let frame = |name: &str, file: &str, line| (name.to_owned(), file.to_owned(), line);
            let frames = vec![frame("relu", "torch/nn/functional.py", 10), frame("forward", "model.py", 3)];
            let mut stack = SharedStack::of(frames);
            for at in 0..n / 2 {
                event(p, "alloc", FIRST + 4096 * at, 4096, 2 * at, &mut stack);
                if at > 0 {
                    event(p, "free_completed", FIRST + 4096 * (at - 1), 4096, 2 * at + 1, &mut stack);
                }
            }
        })
    }),
    ("annotations", |n| {
        let mut p = PickleWriter::begin();
        p.dict(|p| {
            p.text("segments");
            p.list(|_| ());
            p.text("device_traces");
            let mut one = SharedStack::lines(0..1);
            p.list(|p| p.list(|p| (0..1000).for_each(|at| event(p, "alloc", FIRST + 512 * at, 512, at, &mut one))));
            p.text("external_annotations");
            p.list(|p| (0..2 * n).for_each(|at| annotation(p, at)));
        });
        p.end()
    }),
    ("times", |_| {
        let time = |at| [f64::NAN, f64::INFINITY, -5.0][at as usize % 3];
        log(|p| (0..100).for_each(|at| odd_event(p, 512, at, |p| p.float(time(at)))))
    }),
    ("negative", |_| log(|p| (0..10).for_each(|at| odd_event(p, -512, at, |p| p.number(at.into()))))),
    ("huge", |_| log(|p| (0..10).for_each(|at| odd_event(p, 1 << 70, at, |p| p.number(at.into()))))),
    ("long-name", |n| {
        log(|p| {
            let mut stack = SharedStack::of(vec![("A".repeat(n as usize), "B".repeat(n as usize), 1)]);
            (0..10).for_each(|at| event(p, "alloc", FIRST + 512 * at, 512, at, &mut stack));
        })
    }),
    ("cyclic", |_| {
        let mut p = PickleWriter::begin();
        p.put(b']');
        let list = p.remember();
        p.recall(list);
        p.put(b'a');
        p.end()
    }),
    ("deep", |n| {
        let mut p = PickleWriter::begin();
        (0..n).for_each(|_| p.put(b']'));
        (1..n).for_each(|_| p.put(b'a'));
        p.end()
    }),
];

/// A snapshot with these segments and this log.
fn snapshot(segments: impl FnOnce(&mut PickleWriter), events: impl FnOnce(&mut PickleWriter)) -> Vec<u8> {
    let mut p = PickleWriter::begin();
    p.dict(|p| {
        p.text("device_traces");
        p.list(|p| p.list(events));
        p.text("segments");
        p.list(segments);
        p.text("allocator_settings");
        p.dict(|_| ());
    });
    p.end()
}

fn log(events: impl FnOnce(&mut PickleWriter)) -> Vec<u8> {
    snapshot(|_| (), events)
}

fn event(p: &mut PickleWriter, action: &str, address: u64, size: u64, time_us: u64, stack: &mut SharedStack) {
    p.dict(|p| {
        p.texts(&[("action", action)]);
        p.numbers(&[("addr", address), ("size", size), ("stream", 0), ("time_us", time_us)]);
        p.text("frames");
        stack.write(p);
    });
}

/// An alloc of any size at any time.
fn odd_event(p: &mut PickleWriter, size: i128, at: u64, time: impl FnOnce(&mut PickleWriter)) {
    p.dict(|p| {
        p.texts(&[("action", "alloc")]);
        p.numbers(&[("addr", FIRST + 512 * at), ("stream", 0)]);
        p.text("size");
        p.number(size);
        p.text("time_us");
        time(p);
    });
}

fn segment(p: &mut PickleWriter, address: u64, size: u64, blocks: &[(u64, bool)]) {
    p.dict(|p| {
        p.numbers(&[("device", 0), ("address", address), ("total_size", size), ("stream", 0)]);
        p.texts(&[("segment_type", "large")]);
        p.text("blocks");
        p.list(|p| {
            let mut at = address;
            for (size, is_live) in blocks {
                p.dict(|p| {
                    p.numbers(&[("address", at), ("size", *size), ("requested_size", *size)]);
                    p.texts(&[("state", if *is_live { "active_allocated" } else { "inactive" })]);
                });
                at += size;
            }
        });
    });
}

fn annotation(p: &mut PickleWriter, at: u64) {
    p.dict(|p| {
        p.texts(&[("stage", if at.is_multiple_of(2) { "START" } else { "END" }), ("name", &format!("s{}", at / 2))]);
        p.numbers(&[("device", 0), ("time_us", at)]);
    });
}
