//! Scopes as ranges of NVTX, NVIDIA's tools extension, which Nsight Systems and other tools show.
//!
//! This module does what NVTX's headers do in a C program. Before the first range, it loads the tool that
//! `NVTX_INJECTION64_PATH` names and calls the tool's `InitializeInjectionNvtx2`. The tool then puts its functions
//! into memtrace's *slots*, variables that hold the functions to call. Without a tool nothing happens.
#![expect(unsafe_code, reason = "gives tables to a tool in C, and calls its functions")]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStringExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use memtrace_core::snapshot::ContextId;

use super::nvtx_tables::{
    CALLBACKS, CORE, CORE2, Callbacks, Function, GetExportTable, RANGE_POP, RANGE_PUSH_A, SLOTS, Slots,
};
use crate::errno::KeepErrno;
use crate::record::{CONTEXTS, guard};

/// The most bytes of a range's message, including the zero at its end.
const LONGEST: usize = 256;

/// The slots of one module (a group of NVTX's functions), into which a tool puts functions. Entry 0 is unused.
type Functions = [AtomicPtr<c_void>; SLOTS];

/// The addresses of a module's slots.
struct Addresses([*const AtomicPtr<c_void>; SLOTS]);

// SAFETY: the pointers are addresses of statics and never change.
unsafe impl Sync for Addresses {}

impl Addresses {
    const fn of(functions: &'static Functions) -> Self {
        let mut all = [std::ptr::null(); SLOTS];
        let mut at = 1;
        while at < SLOTS {
            all[at] = &raw const functions[at];
            at += 1;
        }
        Self(all)
    }
}

static FUNCTIONS: Functions = [const { AtomicPtr::new(null_mut()) }; SLOTS];
static CORE_ADDRESSES: Addresses = Addresses::of(&FUNCTIONS);
/// Slots for NVTX's functions with domains, because Nsight Systems does not stay in a program without such slots.
/// memtrace never calls the functions in them.
static UNUSED: Functions = [const { AtomicPtr::new(null_mut()) }; SLOTS];
static CORE2_ADDRESSES: Addresses = Addresses::of(&UNUSED);

static TABLE: Callbacks = Callbacks { size: size_of::<Callbacks>(), slots: Some(slots) };

/// 0: nobody has looked for a tool yet. 1: a thread is loading the tool. 2: the tool is loaded, or there is none.
static LOADING: AtomicU8 = AtomicU8::new(0);

/// Begins a range on this thread, with the context's innermost label as its message. False if no range begins, because
/// the label is empty or no tool is loaded.
pub(super) fn begin(context: ContextId) -> bool {
    if LOADING.load(Ordering::Acquire) != 2 && !load_once() {
        return false;
    }
    let Some(push) = function(RANGE_PUSH_A) else { return false };
    let mut message = [0; LONGEST];
    let (_own, _errno) = (guard::own_work(), KeepErrno::new());
    if CONTEXTS.copy_label(context, &mut message[..LONGEST - 1]) == 0 {
        return false;
    }
    // SAFETY: the tool put `nvtxRangePushA` there.
    let push: unsafe extern "C" fn(*const c_char) -> c_int = unsafe { std::mem::transmute(push) };
    // SAFETY: the message is a string that ends with a zero.
    unsafe { push(message.as_ptr().cast()) };
    true
}

/// Ends the innermost range that [`begin`] began on this thread.
pub(super) fn end() {
    let Some(pop) = function(RANGE_POP) else { return };
    let (_own, _errno) = (guard::own_work(), KeepErrno::new());
    // SAFETY: the tool put `nvtxRangePop` there.
    let pop: unsafe extern "C" fn() -> c_int = unsafe { std::mem::transmute(pop) };
    // SAFETY: the function has no arguments.
    unsafe { pop() };
}

fn function(slot: usize) -> Option<Function> {
    let function = FUNCTIONS.get(slot)?.load(Ordering::Acquire);
    (!function.is_null()).then_some(function.cast_const())
}

/// Loads the tool, unless a thread has begun to. False if another thread is loading it. No thread waits for the
/// loading one, because in a forked child it does not exist, and the wait would never end.
fn load_once() -> bool {
    if LOADING.compare_exchange(0, 1, Ordering::Acquire, Ordering::Acquire).is_err() {
        return false;
    }
    let (_own, _errno) = (guard::own_work(), KeepErrno::new());
    load();
    LOADING.store(2, Ordering::Release);
    true
}

fn load() {
    let Some(path) = std::env::var_os("NVTX_INJECTION64_PATH") else { return };
    let Ok(path) = CString::new(path.into_vec()) else { return };
    // SAFETY: the path is a C string. The library runs its constructors, as the user who set the variable wants.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) };
    if library.is_null() {
        return;
    }
    // SAFETY: the library is open, and the name is a C string.
    let initialize = unsafe { libc::dlsym(library, c"InitializeInjectionNvtx2".as_ptr()) };
    if initialize.is_null() {
        return;
    }
    // SAFETY: NVTX specifies this type for the function of this name.
    let initialize: unsafe extern "C" fn(GetExportTable) -> c_int = unsafe { std::mem::transmute(initialize) };
    // SAFETY: the tables have NVTX's layout and live for ever.
    unsafe { initialize(export_table) };
}

extern "C" fn export_table(number: c_uint) -> *const c_void {
    match number {
        CALLBACKS => (&raw const TABLE).cast(),
        _ => std::ptr::null(),
    }
}

unsafe extern "C" fn slots(module: c_int, slots: *mut Slots, count: *mut c_uint) -> c_int {
    let addresses = match module {
        CORE => &CORE_ADDRESSES,
        CORE2 => &CORE2_ADDRESSES,
        _ => return 0,
    };
    // SAFETY: the pointer is null or points to the tool's variable.
    let Some(slots) = (unsafe { slots.as_mut() }) else { return 0 };
    // SAFETY: as above.
    let Some(count) = (unsafe { count.as_mut() }) else { return 0 };
    *slots = addresses.0.as_ptr().cast();
    *count = SLOTS as c_uint;
    1
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::cell::RefCell;
    use std::ffi::CStr;

    use super::super::open::MAX_OPEN;
    use super::super::{Context, ScopeGuard, module, scope, scope_guard};
    use super::*;

    thread_local!(static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) });

    unsafe extern "C" fn push(message: *const c_char) -> c_int {
        // SAFETY: `begin` passes a string that ends with a zero.
        let message = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
        CALLS.with_borrow_mut(|calls| calls.push(message));
        std::fs::metadata("/nowhere/at all").unwrap_err();
        0
    }

    extern "C" fn pop() -> c_int {
        CALLS.with_borrow_mut(|calls| calls.push("<".to_owned()));
        0
    }

    /// The calls that this test's tool gets on this thread while `work` runs.
    fn calls(work: impl FnOnce()) -> String {
        // Other tests of this process call the tool as well, on their threads.
        FUNCTIONS[RANGE_PUSH_A].store(push as *mut c_void, Ordering::Release);
        FUNCTIONS[RANGE_POP].store(pop as *mut c_void, Ordering::Release);
        LOADING.store(2, Ordering::Release);
        CALLS.take();
        work();
        CALLS.take().join(" ")
    }

    #[test]
    fn scopes_and_parts_of_models_are_ranges() {
        let both = || scope("forward", || module("layer 1", || scope("matmul", || ())));
        assert_eq!(calls(both), "forward layer 1 matmul < < <");
    }

    #[test]
    fn ranges_end_newest_first_in_whatever_order_the_scopes_do() {
        let any = || {
            let (a, b, c) = (scope_guard("a"), scope_guard("b"), scope_guard("c"));
            drop(b);
            drop(a);
            let d = scope_guard("d");
            drop(c);
            drop(d);
        };
        assert_eq!(calls(any), "a b c < < c < < c d < < d <");
    }

    #[test]
    fn a_carried_context_is_a_range_of_its_thread_and_an_empty_one_is_none() {
        let _outer = scope_guard("outer");
        let here = Context::current();
        let there = std::thread::spawn(move || calls(|| here.scope(|| scope("inner", || ()))));
        assert_eq!(there.join().unwrap(), "outer inner < <");
        let nowhere = std::thread::spawn(|| calls(|| Context::current().scope(|| scope("", || ()))));
        assert_eq!(nowhere.join().unwrap(), "");
    }

    #[test]
    fn what_is_no_scope_is_no_range() {
        assert_eq!(calls(|| scope("step", || drop(ScopeGuard::of_measure(7)))), "step <");
        let nest = |levels: usize| {
            let mut guards: Vec<_> = (0..levels).map(|_| scope_guard("deep")).collect();
            while guards.pop().is_some() {}
        };
        let deep = calls(|| nest(MAX_OPEN + 5));
        assert_eq!([deep.matches("deep").count(), deep.matches('<').count()], [MAX_OPEN; 2]);
    }

    #[test]
    fn messages_end_at_a_zero_or_after_255_bytes() {
        assert_eq!(calls(|| scope("a\0b", || ())), "a <");
        let long = "x".repeat(300);
        assert_eq!(calls(|| scope(&long, || ())), format!("{} <", &long[..LONGEST - 1]));
        assert_eq!(calls(|| scope("é".repeat(200), || ())), format!("{} <", "é".repeat(127)), "no half of a letter");
    }

    #[test]
    fn errno_stays() {
        let errno = || std::io::Error::last_os_error().raw_os_error();
        calls(|| {
            std::fs::read_dir("/dev/null").unwrap_err();
            let before = errno();
            scope("scope", || assert_eq!(errno(), before));
        });
    }

    #[cfg(feature = "preload")]
    #[test]
    fn ranges_that_came_from_nvtx_do_not_go_back() {
        use super::super::range::{self, Label};
        let mixed = || {
            range::push(0, Label::Text("came"));
            let own = scope_guard("own");
            range::push(0, Label::Text("came, too"));
            drop(own);
            range::pop(0);
            range::pop(0);
        };
        assert_eq!(calls(mixed), "own <");
    }

    #[test]
    fn a_tool_asks_for_other_tables_in_vain() {
        assert!([0, 2, 3, 4].into_iter().all(|number| export_table(number).is_null()));
        let (mut found, mut count): (Slots, c_uint) = (std::ptr::null(), 0);
        // SAFETY: both pointers point to variables.
        assert_eq!((unsafe { slots(2, &mut found, &mut count) }, count), (0, 0));
        // SAFETY: one pointer is null, the other points to a variable.
        assert_eq!(unsafe { slots(CORE, null_mut(), &mut count) }, 0);
    }
}
