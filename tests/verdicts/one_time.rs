//! One-time initialization does not count where a static or a thread-local holds what it makes, and counts elsewhere.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Once, OnceLock, mpsc};

use crate::{Verdict, fails, removed};
use memtrace::PeakLimit;

const LARGE: usize = 4 << 20;

fn limit(f: impl FnOnce()) -> Verdict {
    PeakLimit::new().limit("1 MiB").run(f)
}

fn large() -> Vec<u8> {
    black_box(vec![1u8; LARGE])
}

/// A static is initialized once in a process, so each program runs once. Then it needs nothing.
macro_rules! not_counted {
    ($($name:ident: $program:block)*) => {$(
        #[test]
        fn $name() {
            limit(|| $program).unwrap_or_else(|failure| panic!("{}", removed(&failure)));
        }
    )*};
}

#[derive(Default)]
struct Layer {
    mask: OnceLock<Vec<u8>>,
}

fn mask(of: &OnceLock<Vec<u8>>) {
    black_box(of.get_or_init(large));
}

not_counted! {
    a_block_of_a_static: {
        static CELL: OnceLock<Vec<u8>> = OnceLock::new();
        mask(&CELL);
    }
    a_table_that_outgrew_others: {
        static TABLE: LazyLock<HashMap<u64, [u64; 16]>> =
            LazyLock::new(|| (0..10_000).map(|key| (key, [key; 16])).collect());
        black_box(TABLE.len());
    }
    rows_of_a_table: {
        static ROWS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..8).map(|_| large()).collect());
        black_box(ROWS.len());
    }
    a_row_of_a_table_that_another_static_points_to: {
        static ROWS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
            let rows: Vec<Vec<u8>> = (0..8).map(|_| large()).collect();
            CURRENT.store(rows[3].as_ptr().cast_mut(), Ordering::Relaxed);
            rows
        });
        static CURRENT: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
        black_box((ROWS.len(), &CURRENT));
    }
    what_a_static_needed_for_a_moment: {
        static NAME: LazyLock<String> = LazyLock::new(|| large().len().to_string());
        black_box(NAME.len());
    }
    a_static_that_shares_its_block: {
        static SHARED: LazyLock<Arc<Layer>> = LazyLock::new(|| {
            let layer = Arc::new(Layer::default());
            mask(&layer.mask);
            layer
        });
        black_box(SHARED.mask.get());
    }
    a_static_filled_once: {
        static ONCE: Once = Once::new();
        static ROWS: Mutex<Vec<u8>> = Mutex::new(Vec::new());
        ONCE.call_once(|| *ROWS.lock().unwrap() = large());
    }
    a_static_of_an_object: {
        static LAYER: Layer = Layer { mask: OnceLock::new() };
        mask(&LAYER.mask);
    }
    a_variable_of_this_thread: {
        thread_local!(static SCRATCH: RefCell<Vec<u8>> = RefCell::new(large()));
        SCRATCH.with(|scratch| black_box(scratch.borrow().len()));
    }
}

#[test]
fn a_variable_of_a_thread_that_was_there_before_is_not_counted() {
    thread_local!(static SCRATCH: RefCell<Vec<u8>> = RefCell::new(large()));
    let (to, work) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
    let worker = std::thread::spawn(move || work.iter().for_each(|work| work()));
    let ask = |work: fn()| {
        let (done, wait) = mpsc::channel();
        let work = move || {
            work();
            done.send(()).unwrap();
        };
        to.send(Box::new(work)).unwrap();
        wait.recv().unwrap();
    };
    limit(|| ask(|| SCRATCH.with(|scratch| drop(black_box(scratch.borrow())))))
        .unwrap_or_else(|failure| panic!("{failure}"));
    assert!(limit(|| ask(|| drop(large()))).unwrap_err().is_undecided());
    drop(to);
    worker.join().unwrap();
}

/// What initializes itself inside of another cell's initialization is that cell's no more than the other way round.
#[test]
fn a_static_that_an_objects_cell_needs_first_proves_nothing_for_the_object() {
    static SIZE: LazyLock<Vec<u8>> = LazyLock::new(|| black_box(vec![1u8; 2000]));
    thread_local!(static OWN: RefCell<Vec<u8>> = RefCell::new(black_box(vec![1u8; 2000])));
    let layer = Layer::default();
    let needs_static = || layer.mask.get_or_init(|| black_box(vec![1u8; LARGE + SIZE.len()])).len();
    assert!(limit(|| _ = black_box(needs_static())).is_err());
    let layer = Layer::default();
    let needs_own =
        || layer.mask.get_or_init(|| OWN.with(|own| black_box(vec![1u8; LARGE + own.borrow().len()]))).len();
    assert!(limit(|| _ = black_box(needs_own())).is_err());
    // A static's initialization may fill cells of its objects.
    static OUTER: LazyLock<Vec<Layer>> = LazyLock::new(|| {
        let layers: Vec<Layer> = black_box((0..4).map(|_| Layer::default()).collect());
        layers.iter().for_each(|layer| mask(&layer.mask));
        layers
    });
    limit(|| _ = black_box(OUTER.len())).unwrap_or_else(|failure| panic!("{}", removed(&failure)));
}

/// The harness keeps the text; what the values allocate to make it is theirs.
#[test]
fn a_value_that_is_printed_pays_for_itself() {
    struct Printed;
    impl std::fmt::Display for Printed {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(if large().len() == LARGE { "large" } else { "small" })
        }
    }
    fails(|| limit(|| println!("{Printed}")));
    crate::passes(|| limit(|| println!("{}", "text ".repeat(10))));
}

#[test]
fn scaling_is_undecided_where_an_older_thread_may_have_worked() {
    use memtrace::{Scales, Scaling};
    let (ask, asked) = mpsc::channel::<usize>();
    let (answer, answered) = mpsc::channel();
    let older = std::thread::Builder::new().name("older".to_owned());
    let _ = older.spawn(move || asked.iter().for_each(|n| answer.send(black_box(vec![1u8; n * n]).len()).unwrap()));
    let scales = || Scales::new(Scaling::Linear).sizes([500, 1000, 2000]);
    let work = |n| {
        ask.send(n).unwrap();
        answered.recv().unwrap()
    };
    assert!(scales().run(work).unwrap_err().to_string().contains("undecided"));
    scales().allow("scaling_is_undecided_where_an_older_thread_may_have_worked").run(work).unwrap();
}

#[test]
fn a_cell_that_is_no_static_counts() {
    fails(|| limit(|| mask(&Layer::default().mask)));
    fails(|| {
        limit(|| {
            let lazy = black_box(Box::new(LazyLock::new(large)));
            black_box(lazy.len());
        })
    });
    fails(|| {
        limit(|| {
            let (once, mut rows) = (Once::new(), Vec::new());
            once.call_once(|| rows = large());
            black_box(&rows);
        })
    });
    // Of a thread that ends with the code: each run needs it again.
    fails(|| {
        thread_local!(static SCRATCH: RefCell<Vec<u8>> = RefCell::new(large()));
        limit(|| std::thread::spawn(|| SCRATCH.with(|scratch| drop(black_box(scratch.borrow())))).join().unwrap())
    });
}

#[test]
fn an_object_that_a_static_lists_is_no_static() {
    static LISTED: Mutex<Vec<Arc<Layer>>> = Mutex::new(Vec::new());
    fails(|| {
        let layer = Arc::new(Layer::default());
        LISTED.lock().unwrap().push(Arc::clone(&layer));
        limit(|| mask(&layer.mask))
    });
}

#[test]
fn a_cell_beside_a_static_counts() {
    static FIRST: OnceLock<Vec<u8>> = OnceLock::new();
    fails(|| {
        let layer = Layer::default();
        limit(|| [&FIRST, &layer.mask].into_iter().for_each(mask))
    });
}
