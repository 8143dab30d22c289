//! The imports of loaded objects: which slot of memory holds the address of which foreign function.
#![expect(unsafe_code, reason = "the loader's tables are raw memory")]

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::slice;

/// Where an object keeps the address of a function that it imports.
#[derive(Clone, Debug)]
pub(in crate::hook) struct Import<'a> {
    pub(in crate::hook) name: &'a CStr,
    pub(in crate::hook) slot: *mut usize,
    /// A word of the object's data, which its program may change, and not of its tables of imports.
    pub(in crate::hook) data: bool,
    /// The loader makes the slot's page read-only when it is done with the object.
    pub(in crate::hook) read_only: bool,
    /// The slot lies where an object has no writable memory, as in code, or across two words.
    pub(in crate::hook) fixed: bool,
    /// Where a slot leads that the loader has not looked up yet, because it does so at the first call.
    pub(in crate::hook) stubs: Range<usize>,
}

const R_X86_64_64: u32 = 1;
const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;

const DT_PLTRELSZ: usize = 2;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const DT_JMPREL: usize = 23;

/// Calls `each` for every import of every loaded object but those of CUDA and of the system, whose own
/// calls must reach what they mean. Allocates nothing: `each` must not either, for the loader is locked.
pub(in crate::hook) fn each_import(mut each: impl FnMut(Import<'_>)) {
    let mut each: &mut dyn FnMut(Import<'_>) = &mut each;
    let each: *mut &mut dyn FnMut(Import<'_>) = &mut each;
    // SAFETY: `visit` is called during this call only, with `each` as its last argument.
    unsafe { libc::dl_iterate_phdr(Some(visit), each.cast()) };
}

/// How many objects were ever loaded: changes when one was.
pub(in crate::hook) fn objects_loaded() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _size: usize, out: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record.
        let adds = unsafe { (*info).dlpi_adds };
        // SAFETY: `objects_loaded` passes its own number.
        unsafe { out.cast::<u64>().write(adds) };
        1
    }
    let mut adds = 0u64;
    let out: *mut u64 = &mut adds;
    // SAFETY: `first` is called during this call only, with `out` as its last argument.
    unsafe { libc::dl_iterate_phdr(Some(first), out.cast()) };
    adds
}

/// # Safety
/// `info` and `each` as `dl_iterate_phdr` in [`each_import`] passes them.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, each: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid record.
    let info = unsafe { &*info };
    // SAFETY: `each_import` passes its closure, which nobody else uses meanwhile.
    let each = unsafe { &mut *each.cast::<&mut dyn FnMut(Import<'_>)>() };
    if !is_left_alone(info)
        && let Some(object) = Object::of(info)
    {
        object.each_import(each);
    }
    0
}

fn is_left_alone(info: &libc::dl_phdr_info) -> bool {
    const SYSTEM: [&[u8]; 7] =
        [b"libcuda.so", b"libcupti.so", b"libc.so", b"ld-linux", b"libdl.so", b"libpthread.so", b"linux-vdso"];
    if info.dlpi_name.is_null() {
        return false;
    }
    // SAFETY: the loader's name is a C string that lives as long as the object is loaded.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    SYSTEM.iter().any(|name| file.starts_with(name))
}

pub(in crate::hook) fn page_size() -> usize {
    // SAFETY: asks for a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize
}

/// The tables of a loaded object that say what it imports.
struct Object {
    base: usize,
    symbols: usize,
    strings: usize,
    /// Address and size of the two relocation tables.
    tables: [(usize, usize); 2],
    read_only: Range<usize>,
    code: Range<usize>,
    headers: &'static [libc::Elf64_Phdr],
}

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// The values of the dynamic section by tag, as far as the tags are wanted.
fn dynamic_values(mut entry: *const Dynamic) -> [usize; DT_JMPREL + 1] {
    let mut values = [0; DT_JMPREL + 1];
    loop {
        // SAFETY: a loaded object's dynamic section ends with an entry of tag 0, and we stop there.
        let Dynamic { tag, value } = unsafe { entry.read() };
        if tag == 0 {
            return values;
        }
        if let Some(slot) = usize::try_from(tag).ok().and_then(|tag| values.get_mut(tag)) {
            *slot = value as usize;
        }
        entry = entry.wrapping_add(1);
    }
}

impl Object {
    fn of(info: &libc::dl_phdr_info) -> Option<Self> {
        if info.dlpi_phdr.is_null() {
            return None;
        }
        // SAFETY: the loader says that this many headers lie there.
        let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let base = info.dlpi_addr as usize;
        let at = |header: &libc::Elf64_Phdr| base.wrapping_add(header.p_vaddr as usize);
        let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let relro = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO);
        // As the loader rounds: what shares its page with other data stays writable.
        let page = |address: usize| address & !(page_size() - 1);
        let end = |header: &libc::Elf64_Phdr| at(header).wrapping_add(header.p_memsz as usize);
        let read_only = relro.map_or(0..0, |header| page(at(header))..page(end(header)));
        let code = headers.iter().find(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0);
        let code = code.map_or(0..0, |header| at(header)..end(header));
        let values = dynamic_values(at(dynamic) as *const Dynamic);
        let value = |tag: usize| values.get(tag).copied().unwrap_or(0);
        // glibc turns these into addresses, other loaders leave them relative to the base.
        let address = |tag| match value(tag) {
            0 => 0,
            value if value < base => base.wrapping_add(value),
            value => value,
        };
        let (symbols, strings) = (address(DT_SYMTAB), address(DT_STRTAB));
        let tables = [(address(DT_JMPREL), value(DT_PLTRELSZ)), (address(DT_RELA), value(DT_RELASZ))];
        (symbols != 0 && strings != 0).then_some(Self { base, symbols, strings, tables, read_only, code, headers })
    }

    fn is_writable(&self, slot: usize) -> bool {
        self.headers.iter().any(|header| {
            let start = self.base.wrapping_add(header.p_vaddr as usize);
            let range = start..start.wrapping_add(header.p_memsz as usize);
            header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0 && range.contains(&slot)
        })
    }

    fn each_import(&self, each: &mut dyn FnMut(Import<'_>)) {
        for (table, bytes) in self.tables.into_iter().filter(|(table, _)| *table != 0) {
            // SAFETY: the object's dynamic section says that the table lies there and is so long.
            let table = unsafe { slice::from_raw_parts(table as *const Relocation, bytes / size_of::<Relocation>()) };
            table.iter().filter_map(|relocation| self.import(relocation)).for_each(&mut *each);
        }
    }

    /// The import that a relocation fills in, if it is the address of a function of another object.
    fn import(&self, relocation: &Relocation) -> Option<Import<'_>> {
        let kind = relocation.info as u32;
        let plain = [R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT].contains(&kind) && relocation.addend == 0;
        if !plain {
            return None;
        }
        let symbol = (self.symbols as *const libc::Elf64_Sym).wrapping_add((relocation.info >> 32) as usize);
        // SAFETY: a relocation names a symbol of its own object's table.
        let symbol = unsafe { &*symbol };
        if symbol.st_shndx != 0 {
            return None;
        }
        let name = self.strings.wrapping_add(symbol.st_name as usize) as *const std::ffi::c_char;
        // SAFETY: a symbol's name is a C string in its object's string table.
        let name = unsafe { CStr::from_ptr(name) };
        let slot = self.base.wrapping_add(relocation.offset as usize);
        let stubs = if kind == R_X86_64_JUMP_SLOT { self.code.clone() } else { 0..0 };
        Some(Import {
            name,
            slot: slot as *mut usize,
            data: kind == R_X86_64_64,
            read_only: self.read_only.contains(&slot),
            fixed: !self.is_writable(slot) || !slot.is_multiple_of(align_of::<usize>()),
            stubs,
        })
    }
}
