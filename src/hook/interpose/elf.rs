//! ELF imports of loaded objects: the GOT slots, and the foreign function whose address each slot contains.
#![expect(unsafe_code, reason = "the loader's tables are raw memory")]

use std::ffi::CStr;
use std::ops::{ControlFlow, Range};
use std::slice;

use crate::elf;
use crate::record::own_pages::page_size;

/// An import: the slot in which an object keeps the address of a foreign function.
#[derive(Clone, Debug)]
pub(in crate::hook) struct Import<'a> {
    pub(in crate::hook) name: &'a CStr,
    pub(in crate::hook) slot: *mut usize,
    /// The slot is not part of the GOT, but a word of the object's data, which the program may change.
    pub(in crate::hook) data: bool,
    /// The loader makes the slot's page read-only after relocation (RELRO).
    pub(in crate::hook) read_only: bool,
    /// The slot cannot be changed: it is outside writable memory, as in code, or unaligned.
    pub(in crate::hook) fixed: bool,
    /// The addresses that the slot may contain while the loader has not resolved it, which it does at the first call
    /// (lazy binding). Empty if the slot is never lazy.
    pub(in crate::hook) stubs: Range<usize>,
}

/// Types of relocations that write the address of a function: to a word of data, to the GOT, to a slot of the PLT. Not
/// among these types are aarch64's relocations of descriptors of thread-local variables, which lead to the loader's
/// own functions.
const R_WORD: u32 = if IS_X86_64 { 1 } else { 257 };
const R_GLOB_DAT: u32 = if IS_X86_64 { 6 } else { 1025 };
const R_JUMP_SLOT: u32 = if IS_X86_64 { 7 } else { 1026 };
const IS_X86_64: bool = cfg!(target_arch = "x86_64");

const DT_PLTRELSZ: usize = 2;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const DT_SONAME: usize = 14;
const DT_JMPREL: usize = 23;

/// Calls `each` for every import of every loaded object, except the objects of CUDA and of the system: their own calls
/// must not be redirected. The loader is locked meanwhile, so neither this function nor `each` may allocate.
pub(in crate::hook) fn each_import(mut each: impl FnMut(Import<'_>)) {
    elf::each_object(|info| {
        if !is_left_alone(info)
            && let Some(object) = ElfImports::of(info)
        {
            object.each_import(&mut each);
        }
        ControlFlow::Continue(())
    });
}

/// Number of objects ever loaded.
pub(in crate::hook) fn objects_loaded() -> u64 {
    let mut count = 0;
    elf::each_object(|info| {
        count = info.dlpi_adds;
        ControlFlow::Break(())
    });
    count
}

/// Whether an object with this name is loaded. If none is, this opens no files, unlike `dlopen` with `RTLD_NOLOAD`.
pub(in crate::hook) fn is_loaded(name: &CStr) -> bool {
    let mut is_loaded = false;
    elf::each_object(|info| {
        let file = elf::path(info).to_bytes().rsplit(|byte| *byte == b'/').next();
        let has_name = || ElfImports::of(info).is_some_and(|object| object.name() == Some(name));
        is_loaded = file == Some(name.to_bytes()) || has_name();
        if is_loaded { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    is_loaded
}

pub(super) fn is_left_alone(info: &libc::dl_phdr_info) -> bool {
    const SYSTEM: [&[u8]; 7] =
        [b"libcuda.so", b"libcupti.so", b"libc.so", b"ld-linux", b"libdl.so", b"libpthread.so", b"linux-vdso"];
    let path = elf::path(info).to_bytes();
    let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    SYSTEM.iter().any(|name| file.starts_with(name))
}

/// The tables of a loaded object that describe its imports.
struct ElfImports<'a> {
    base: usize,
    symbols: usize,
    strings: usize,
    /// Offset of the object's own name among the strings; 0 if it has none.
    name: usize,
    /// Address and size of each relocation table.
    tables: [(usize, usize); 2],
    read_only: Range<usize>,
    code: Range<usize>,
    headers: &'a [libc::Elf64_Phdr],
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

/// Values of the dynamic section, indexed by tag.
fn dynamic_values(mut entry: *const Dynamic) -> [usize; DT_JMPREL + 1] {
    let mut values = [0; DT_JMPREL + 1];
    loop {
        // SAFETY: the entries up to one of tag 0 belong to the dynamic section, and the loop stops at that entry.
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

impl<'a> ElfImports<'a> {
    fn of(info: &'a libc::dl_phdr_info) -> Option<Self> {
        let headers = elf::headers(info);
        let base = info.dlpi_addr as usize;
        let at = |header: &libc::Elf64_Phdr| base.wrapping_add(header.p_vaddr as usize);
        let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let relro = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO);
        // Rounded down as in the loader: if the last page is shared with other data, it stays writable.
        let page = |address: usize| address & !(page_size() - 1);
        let end = |header: &libc::Elf64_Phdr| at(header).wrapping_add(header.p_memsz as usize);
        let read_only = relro.map_or(0..0, |header| page(at(header))..page(end(header)));
        let code = headers.iter().find(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0);
        let code = code.map_or(0..0, |header| at(header)..end(header));
        let values = dynamic_values(at(dynamic) as *const Dynamic);
        let value = |tag: usize| values.get(tag).copied().unwrap_or(0);
        // glibc replaces these values by addresses. Other loaders leave them as offsets from the base.
        let address = |tag| match value(tag) {
            0 => 0,
            value if value < base => base.wrapping_add(value),
            value => value,
        };
        let (symbols, strings) = (address(DT_SYMTAB), address(DT_STRTAB));
        let tables = [(address(DT_JMPREL), value(DT_PLTRELSZ)), (address(DT_RELA), value(DT_RELASZ))];
        let name = value(DT_SONAME);
        (symbols != 0 && strings != 0).then_some(Self {
            base,
            symbols,
            strings,
            name,
            tables,
            read_only,
            code,
            headers,
        })
    }

    fn name(&self) -> Option<&CStr> {
        (self.name != 0).then(|| self.string(self.name))
    }

    fn string(&self, at: usize) -> &CStr {
        let string = self.strings.wrapping_add(at) as *const std::ffi::c_char;
        // SAFETY: the object's tables refer to C strings in its string table.
        unsafe { CStr::from_ptr(string) }
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
            // SAFETY: the dynamic section gives the address and the length of the table.
            let table = unsafe { slice::from_raw_parts(table as *const Relocation, bytes / size_of::<Relocation>()) };
            table.iter().filter_map(|relocation| self.import(relocation)).for_each(&mut *each);
        }
    }

    /// The import that a relocation fills in, if the relocation writes the address of a foreign function.
    fn import(&self, relocation: &Relocation) -> Option<Import<'_>> {
        let kind = relocation.info as u32;
        let plain = [R_WORD, R_GLOB_DAT, R_JUMP_SLOT].contains(&kind) && relocation.addend == 0;
        if !plain {
            return None;
        }
        let symbol = (self.symbols as *const libc::Elf64_Sym).wrapping_add((relocation.info >> 32) as usize);
        // SAFETY: a relocation refers to a symbol of its own object's table.
        let symbol = unsafe { &*symbol };
        if symbol.st_shndx != 0 {
            return None;
        }
        let name = self.string(symbol.st_name as usize);
        let slot = self.base.wrapping_add(relocation.offset as usize);
        let stubs = if kind == R_JUMP_SLOT { self.code.clone() } else { 0..0 };
        Some(Import {
            name,
            slot: slot as *mut usize,
            data: kind == R_WORD,
            read_only: self.read_only.contains(&slot),
            fixed: !self.is_writable(slot) || !slot.is_multiple_of(align_of::<usize>()),
            stubs,
        })
    }
}
