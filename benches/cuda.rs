//! Cost of the CUDA hooks: nanoseconds per `cuMemAllocAsync` + `cuMemFreeAsync`, and per `cuLaunchKernel`, of a driver that
//! does nothing, past the hooks and through them.
//!
//! ```text
//! cargo bench --bench cuda          the table
//! cargo test --benches              a few pairs, to see that it still runs
//! ```
//!
//! # Conditions
//! - Linux with glibc on x86_64, and a C compiler. It builds a `libcuda.so.1` that returns 1,000 addresses in turn and
//!   otherwise 0. A real driver takes about a microsecond per pair, so these figures are what the hooks add, not a ratio.
//! - Every round runs every case, in an order that shifts by one from round to round; `benches/record/main.rs` says why.
//! - One live block of a thread, one size, one thread but in the last table, one stream, one device, no scopes. Stacks are those of this program, whose depth is
//!   printed.
//! - A launch has four pointers and two numbers. Uses of blocks below 1 MiB have no stack, so they show the look at the
//!   arguments alone.
//! - Every measurement starts a new session, whose log of 2^20 records starts empty and grows.
//!
//! The last table is of threads that allocate on one GPU: processor time of all of them, with a driver that does nothing, and
//! with one that is busy for 0.3 to 0.5 µs in each call, by the machine.
//!
//! `--fixed CASE LAUNCHES` runs one case of the second table, from 0, for callgrind: the difference of two runs counts the
//! instructions of a launch.
#![cfg_attr(
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"),
    expect(unsafe_code, reason = "the driver is called in C")
)]

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu")))]
fn main() {
    println!("this platform has no CUDA hooks");
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
fn main() {
    bench::main();
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
mod bench {
    use std::ffi::{CStr, c_char, c_void};
    use std::hint::black_box;
    use std::path::Path;
    use std::process::Command;
    use std::time::Instant;

    use memtrace::{Builder, Device, Enabled, StackContext};

    const DRIVER: &str = "
        #include <stddef.h>
        static unsigned threads, turns;
        static __thread unsigned thread, n;
        static void work(void) { for (volatile unsigned i = 0; i < turns; ) i = i + 1; }
        void busy_for(unsigned count) { turns = count; }
        int cuMemAllocAsync(unsigned long long *address, size_t size, void *stream) {
            if (!thread) thread = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
            *address = 0x7f0000000000ull + 0x200000ull * (thread % 16 * 1000 + ++n % 1000);
            work();
            return 0;
        }
        int cuMemFreeAsync(unsigned long long address, void *stream) { work(); return 0; }
        int cuDeviceGetCount(int *count) { *count = 1; return 0; }
        int cuCtxGetCurrent(void **context) { *context = &threads; return 0; }
        int cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h,
                           void *stream, void **parameters, void **extra) { return 0; }
        int cuFuncGetParamInfo(void *f, size_t index, size_t *offset, size_t *size) {
            *offset = 8 * index;
            *size = index < 4 ? 8 : 4;
            return index < 6 ? 0 : 1;
        }
        int cuFuncGetName(const char **name, void *f) { *name = \"kernel\"; return 0; }
    ";

    type Alloc = extern "C" fn(*mut u64, usize, usize) -> i32;
    type Free = extern "C" fn(u64, usize) -> i32;
    type Launch = extern "C" fn(usize, u32, u32, u32, u32, u32, u32, u32, usize, *mut *mut c_void, usize) -> i32;
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

    struct Case {
        name: &'static str,
        calls: (Alloc, Free),
        session: Option<fn() -> Builder>,
    }

    impl Case {
        /// Nanoseconds per pair, in a new session if the case has one.
        fn measure(&self, pairs: usize) -> f64 {
            let session = self.session.map(|options| options().start().expect("no other session is under way"));
            self.exchange(64);
            let began = Instant::now();
            self.exchange(pairs);
            let nanos = began.elapsed().as_nanos() as f64 / pairs as f64;
            let recorded = memtrace::stats(Device::Cuda(0)).allocations.allocated as usize;
            let expected = if session.is_some() && !self.name.contains("CPU") { pairs + 64 } else { 0 };
            assert_eq!(recorded, expected, "{}", self.name);
            nanos
        }

        fn exchange(&self, pairs: usize) {
            let (alloc, free) = self.calls;
            let mut address = 0;
            for _ in 0..pairs {
                assert_eq!(alloc(black_box(&mut address), 4096, 2), 0);
                assert_eq!(free(black_box(address), 2), 0);
            }
        }
    }

    /// Launches with blocks of one size live.
    struct LaunchCase {
        name: &'static str,
        calls: (Alloc, Free),
        launch: Launch,
        session: Option<fn() -> Builder>,
        live: usize,
        size: usize,
    }

    impl LaunchCase {
        /// Nanoseconds per launch, in a new session if the case has one.
        fn measure(&self, launches: usize) -> f64 {
            let session = self.session.map(|options| options().start().expect("no other session is under way"));
            let (alloc, free) = self.calls;
            let mut addresses = vec![0u64; self.live];
            addresses.iter_mut().for_each(|address| assert_eq!(alloc(address, self.size, 2), 0));
            self.launch(&addresses, 64);
            let began = Instant::now();
            self.launch(&addresses, launches);
            let nanos = began.elapsed().as_nanos() as f64 / launches as f64;
            if let Some(work) = session.as_ref().and_then(|session| session.snapshot().gpu_work.clone()) {
                assert_eq!(work.totals.laid_out as usize, launches + 64, "{}", self.name);
            }
            addresses.iter().for_each(|address| assert_eq!(free(*address, 2), 0));
            nanos
        }

        fn launch(&self, addresses: &[u64], launches: usize) {
            for n in 0..launches {
                let pointer = |at: usize| addresses[(n * 7 + at * 131) % addresses.len()] + 256;
                let (mut pointers, mut numbers) = ([0, 1, 2, 3].map(pointer), [n as u32, 7]);
                let [a, b, c, d] = &mut pointers;
                let [x, y] = &mut numbers;
                let mut arguments: [*mut c_void; 6] = [
                    (&raw mut *a).cast(),
                    (&raw mut *b).cast(),
                    (&raw mut *c).cast(),
                    (&raw mut *d).cast(),
                    (&raw mut *x).cast(),
                    (&raw mut *y).cast(),
                ];
                assert_eq!((self.launch)(5, 1, 1, 1, 1, 1, 1, 0, 2, black_box(arguments.as_mut_ptr()), 0), 0);
            }
        }
    }

    fn launch_cases(library: *mut c_void) -> Vec<LaunchCase> {
        let through = calls(library, libc::dlsym);
        let past = launch(library, original_dlsym());
        let hooked = launch(library, libc::dlsym);
        assert_ne!(past as usize, hooked as usize, "the hooks are in place");
        let with_uses = || memtrace::builder().uses(true);
        let case = |name, launch, session, live, size| LaunchCase { name, calls: through, launch, session, live, size };
        vec![
            case("past the hooks", past, None, 1000, 4096),
            case("hooked, no session", hooked, None, 1000, 4096),
            case("recording, no uses", hooked, Some(memtrace::builder), 1000, 4096),
            case("uses, 100 live blocks", hooked, Some(with_uses), 100, 4096),
            case("uses, 1,000 live blocks", hooked, Some(with_uses), 1000, 4096),
            case("uses, blocks of 1 MiB: with a stack", hooked, Some(with_uses), 1000, 1 << 20),
        ]
    }

    fn launch(library: *mut c_void, dlsym: Dlsym) -> Launch {
        // SAFETY: the handle is open and the name ends with a zero byte.
        let found = unsafe { dlsym(library, c"cuLaunchKernel".as_ptr()) };
        // SAFETY: the function has this type.
        unsafe { std::mem::transmute::<*mut c_void, Launch>(found) }
    }

    fn launches(library: *mut c_void, rounds: usize, launches: usize) {
        let cases = launch_cases(library);
        compare("ns per launch", &cases, |case| case.name, rounds, |case| case.measure(launches));
    }

    fn compare<C>(title: &str, cases: &[C], name: fn(&C) -> &'static str, rounds: usize, measure: impl Fn(&C) -> f64) {
        let mut nanos = vec![Vec::new(); cases.len()];
        for round in 0..rounds {
            for place in 0..cases.len() {
                let case = (place + round) % cases.len();
                nanos[case].push(measure(&cases[case]));
            }
        }
        println!("{title:<44}{:>12}{:>12}{:>14}", "minimum", "median", "more, median");
        let base = nanos[0].clone();
        for (case, nanos) in cases.iter().zip(&mut nanos) {
            let mut more: Vec<f64> = nanos.iter().zip(&base).map(|(this, base)| this - base).collect();
            [&mut *nanos, &mut more].into_iter().for_each(|list| list.sort_unstable_by(f64::total_cmp));
            println!("{:<44}{:>12.1}{:>12.1}{:>14.1}", name(case), nanos[0], nanos[rounds / 2], more[rounds / 2]);
        }
    }

    pub(super) fn main() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let library = load_driver(folder.path());
        if let Some(at) = std::env::args().position(|argument| argument == "--fixed") {
            let number = |at: usize| std::env::args().nth(at)?.parse::<usize>().ok();
            let (case, count) = number(at + 1).zip(number(at + 2)).expect("--fixed CASE LAUNCHES");
            launch_cases(library).get(case).expect("a case of launches, from 0").measure(count);
            return;
        }
        let quick = !std::env::args().any(|argument| argument == "--bench") || std::env::args().any(|a| a == "--test");
        let (rounds, pairs) = if quick { (1, 32) } else { (21, 20_000) };
        let cases = cases(library);
        println!("{rounds} rounds of {pairs} pairs{}", if quick { ": a test, its figures mean nothing" } else { "" });
        println!("stacks of {} frames\n", frames(&cases));
        compare("ns per alloc+free", &cases, |case| case.name, rounds, |case| case.measure(pairs));
        println!();
        launches(library, rounds, pairs);
        println!();
        threads(library, rounds, pairs);
    }

    /// Turns of the driver's loop that take 0.3 to 0.5 µs, by the machine.
    const BUSY: u32 = 1000;

    /// Processor time of all threads that allocate on one GPU.
    fn threads(library: *mut c_void, rounds: usize, pairs: usize) {
        // SAFETY: the handle is open and the name ends with a zero byte.
        let found = unsafe { libc::dlsym(library, c"busy_for".as_ptr()) };
        // SAFETY: the function has this type.
        let busy_for = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(u32)>(found) };
        let (past, through) = (calls(library, original_dlsym()), calls(library, libc::dlsym));
        println!("{:<44}{:>12}{:>12}{:>14}", "ns of processors per alloc+free", "alone", "recording", "added");
        for (turns, count) in [0, BUSY].into_iter().flat_map(|turns| [1, 2, 4].map(|count| (turns, count))) {
            busy_for(turns);
            let (mut alone, mut recording) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                alone.push(of_threads(past, count, pairs));
                let session = memtrace::start().expect("no other session is under way");
                recording.push(of_threads(through, count, pairs));
                drop(session);
            }
            let [alone, recording] = [alone, recording].map(|mut nanos| {
                nanos.sort_unstable_by(f64::total_cmp);
                nanos[rounds / 2]
            });
            let driver = if turns == 0 { "does nothing" } else { "is busy" };
            let name = format!("{count} threads, the driver {driver}");
            println!("{name:<44}{alone:>12.1}{recording:>12.1}{:>14.1}", recording - alone);
        }
    }

    fn of_threads(calls: (Alloc, Free), count: usize, pairs: usize) -> f64 {
        let case = Case { name: "", calls, session: None };
        let began = processor_ns();
        std::thread::scope(|scope| (0..count).for_each(|_| _ = scope.spawn(|| case.exchange(pairs / count))));
        (processor_ns() - began) / pairs as f64
    }

    /// Processor time of this process.
    fn processor_ns() -> f64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes the time.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    }

    fn cases(library: *mut c_void) -> Vec<Case> {
        let past = calls(library, original_dlsym());
        let through = calls(library, libc::dlsym);
        assert_ne!(past.0 as usize, through.0 as usize, "the hooks are in place");
        let case = |name, session| Case { name, calls: through, session };
        vec![
            Case { name: "past the hooks", calls: past, session: None },
            case("hooked, no session", None),
            case("hooked, only the CPU recorded", Some(|| memtrace::builder().device(Device::Cpu))),
            case("recording, counters only", Some(|| without_stacks().enabled(Enabled::State))),
            case("recording, log without stacks", Some(without_stacks)),
            case("recording, log with stacks", Some(memtrace::builder)),
        ]
    }

    fn without_stacks() -> Builder {
        memtrace::builder().context(StackContext::None)
    }

    /// The number of frames of the stacks that the last case takes.
    fn frames(cases: &[Case]) -> usize {
        let session = memtrace::start().expect("no other session is under way");
        cases.last().expect("there are cases").exchange(1);
        let snapshot = session.snapshot();
        let record = snapshot.device(Device::Cuda(0)).expect("it was recorded").records[0];
        snapshot.stacks.frames(record.stack).count()
    }

    fn load_driver(folder: &Path) -> *mut c_void {
        let (source, built) = (folder.join("driver.c"), folder.join("libcuda.so.1"));
        std::fs::write(&source, DRIVER).expect("the source can be written");
        let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        compile.args(["-shared", "-fPIC", "-O2", "-Wl,-soname,libcuda.so.1", "-o"]).arg(&built).arg(&source);
        assert!(compile.status().expect("a C compiler is there").success());
        let path = std::ffi::CString::new(built.to_str().expect("a path in UTF-8")).expect("no zero byte");
        // SAFETY: the library runs no code when it is loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "the driver was built");
        library
    }

    fn calls(library: *mut c_void, dlsym: Dlsym) -> (Alloc, Free) {
        // SAFETY: the handle is open and the names end with a zero byte.
        let find = |name: &CStr| unsafe { dlsym(library, name.as_ptr()) };
        // SAFETY: the function has this type.
        let alloc = unsafe { std::mem::transmute::<*mut c_void, Alloc>(find(c"cuMemAllocAsync")) };
        // SAFETY: the function has this type.
        let free = unsafe { std::mem::transmute::<*mut c_void, Free>(find(c"cuMemFreeAsync")) };
        (alloc, free)
    }

    /// The original `dlsym`, which `dlvsym` finds past the hooks.
    fn original_dlsym() -> Dlsym {
        // SAFETY: the names end with a zero byte.
        let find = |version: &CStr| unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        let found = [c"GLIBC_2.34", c"GLIBC_2.2.5"].map(find).into_iter().find(|found| !found.is_null());
        // SAFETY: the function has this type.
        unsafe { std::mem::transmute::<*mut c_void, Dlsym>(found.expect("glibc has dlsym")) }
    }
}
