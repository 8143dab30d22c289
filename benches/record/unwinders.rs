//! Other unwinders. Each takes the calling thread's stack into a fixed-size buffer.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, UnwindRegsNative, Unwinder, UnwinderNative,
};

pub(crate) type Take = fn(&mut Stack);

/// Code addresses, innermost first.
pub(crate) struct Stack {
    addresses: [u64; 256],
    length: usize,
}

impl Default for Stack {
    fn default() -> Self {
        Self { addresses: [0; 256], length: 0 }
    }
}

impl Stack {
    pub(crate) fn addresses(&self) -> &[u64] {
        &self.addresses[..self.length]
    }

    fn take(&mut self, address: u64) -> bool {
        let place = self.addresses.get_mut(self.length).filter(|_| address != 0);
        self.length += usize::from(place.is_some());
        place.map(|place| *place = address).is_some()
    }
}

/// `backtrace::trace`, with its process-wide lock.
#[inline(never)]
pub(crate) fn backtrace_crate(stack: &mut Stack) {
    backtrace::trace(|frame| stack.take(frame.ip().addr() as u64));
}

type Visit = extern "C" fn(*mut c_void, *mut c_void) -> c_int;

unsafe extern "C" {
    fn _Unwind_Backtrace(visit: Visit, data: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

extern "C" fn visit(context: *mut c_void, stack: *mut c_void) -> c_int {
    // SAFETY: the data passed to `_Unwind_Backtrace`.
    let stack = unsafe { &mut *stack.cast::<Stack>() };
    // SAFETY: the unwinder's own context, valid during this call.
    let address = unsafe { _Unwind_GetIP(context) };
    // Any value but 0 ends the walk.
    if stack.take(address as u64) { 0 } else { 5 }
}

#[inline(never)]
pub(crate) fn libgcc(stack: &mut Stack) {
    let data: *mut Stack = stack;
    // SAFETY: `visit` is called with this stack, and only during this call.
    unsafe { _Unwind_Backtrace(visit, data.cast()) };
}

type Cache = CacheNative<MayAllocateDuringUnwind>;
type Framehop = UnwinderNative<&'static [u8], MayAllocateDuringUnwind>;

static FRAMEHOP: OnceLock<Framehop> = OnceLock::new();

thread_local! {
    static CACHE: std::cell::RefCell<Cache> = std::cell::RefCell::new(Cache::new());
}

/// framehop with the objects that were loaded at its first call, and a cache per thread. It reads any address it is led
/// to, which real code must not do.
#[inline(never)]
pub(crate) fn framehop(stack: &mut Stack) {
    let (ip, registers) = registers();
    let unwinder = FRAMEHOP.get_or_init(with_loaded_objects);
    // SAFETY: addresses of slots in live frames.
    let mut read = |address: u64| Ok(unsafe { (address as *const u64).read_volatile() });
    CACHE.with_borrow_mut(|cache| {
        let mut frames = unwinder.iter_frames(ip, registers, cache, &mut read);
        while let Ok(Some(frame)) = frames.next() {
            if !stack.take(frame.address()) {
                break;
            }
        }
    });
}

/// Where the caller is, and its registers.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn registers() -> (u64, UnwindRegsNative) {
    let (ip, sp, bp): (u64, u64, u64);
    // SAFETY: copies three registers.
    unsafe {
        std::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) ip, out(reg) sp, out(reg) bp);
    }
    (ip, UnwindRegsNative::new(ip, sp, bp))
}

/// Where the caller is, and its registers.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn registers() -> (u64, UnwindRegsNative) {
    let (pc, lr, sp, fp): (u64, u64, u64, u64);
    // SAFETY: copies four registers.
    unsafe {
        std::arch::asm!("adr {}, .", "mov {}, x30", "mov {}, sp", "mov {}, x29", out(reg) pc, out(reg) lr, out(reg) sp, out(reg) fp);
    }
    (pc, UnwindRegsNative::new(lr, sp, fp))
}

fn with_loaded_objects() -> Framehop {
    let mut unwinder = Framehop::new();
    let data: *mut Framehop = &mut unwinder;
    // SAFETY: `add` is called with this unwinder, and only during this call.
    unsafe { libc::dl_iterate_phdr(Some(add), data.cast()) };
    unwinder
}

unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _size: usize, unwinder: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid record.
    let info = unsafe { &*info };
    // SAFETY: the unwinder passed to `dl_iterate_phdr`.
    let unwinder = unsafe { &mut *unwinder.cast::<Framehop>() };
    // SAFETY: the loader guarantees this many headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let range =
        |header: &libc::Elf64_Phdr| info.dlpi_addr + header.p_vaddr..info.dlpi_addr + header.p_vaddr + header.p_memsz;
    let Some(index) = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME).map(range) else { return 0 };
    let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD).map(range);
    let bytes = |range: std::ops::Range<u64>| {
        // SAFETY: part of a readable segment of an object that stays loaded.
        unsafe { std::slice::from_raw_parts(range.start as *const u8, (range.end - range.start) as usize) }
    };
    // The relative address of the entries is at byte 4 of the index.
    // SAFETY: four bytes of the index, which has at least eight.
    let offset = unsafe { ((index.start + 4) as *const i32).read_unaligned() };
    let entries = (index.start + 4).wrapping_add_signed(offset.into());
    let Some(holder) = loaded().find(|range| range.contains(&entries)) else { return 0 };
    let all = loaded().map(|range| range.start).min().unwrap_or(0)..loaded().map(|range| range.end).max().unwrap_or(0);
    let sections = ExplicitModuleSectionInfo {
        base_svma: info.dlpi_addr,
        text_svma: Some(all.clone()),
        eh_frame_svma: Some(entries..holder.end),
        eh_frame: Some(bytes(entries..holder.end)),
        eh_frame_hdr_svma: Some(index.clone()),
        eh_frame_hdr: Some(bytes(index)),
        ..ExplicitModuleSectionInfo::default()
    };
    unwinder.add_module(Module::new(String::new(), all, info.dlpi_addr, sections));
    0
}
