//! Finds rules in the loaded modules, and notices when one was unloaded.
//!
//! A module is looked into only from within `dl_iterate_phdr`'s callback, while the loader keeps it
//! where it is: no list of ours could be out of date. Modules loaded later are found like any other.
#![expect(unsafe_code, reason = "dl_iterate_phdr is a C function; reads the modules in memory")]

use std::ffi::{c_int, c_void};

use gimli::BaseAddresses;

use super::cfi::{self, Frames};
use super::rule::Rule;

/// What the loader said of an address.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) rule: Rule,
    /// How many modules had been loaded and unloaded by then.
    pub(super) counts: (u64, u64),
}

struct Search {
    address: u64,
    visited: usize,
    found: Found,
}

/// The rule for the instruction at `address`.
pub(super) fn find(address: u64) -> Found {
    let mut search = Search { address, visited: 0, found: Found { rule: Rule::UNPROVEN, counts: (0, 0) } };
    let data: *mut Search = &mut search;
    // SAFETY: `visit` is called only during this call, with `data` as its last argument.
    unsafe { libc::dl_iterate_phdr(Some(visit), data.cast()) };
    search.found
}

/// # Safety
/// `info` and `search` as `dl_iterate_phdr` in [`find`] passes them.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid record.
    let info = unsafe { &*info };
    // SAFETY: the caller's search, which nobody else uses meanwhile.
    let search = unsafe { &mut *search.cast::<Search>() };
    search.found.counts = (info.dlpi_adds, info.dlpi_subs);
    let module = Module::of(info);
    search.visited += 1;
    if !module.has_code_at(search.address) {
        return 0;
    }
    let rule = module.frames().and_then(|frames| frames.rule_at(search.address)).unwrap_or(Rule::UNPROVEN);
    search.found.rule = if module.stays(search.visited == 1) { rule.that_stays() } else { rule };
    1
}

struct Module<'a> {
    base: u64,
    headers: &'a [libc::Elf64_Phdr],
    name: *const libc::c_char,
}

impl<'a> Module<'a> {
    fn of(info: &'a libc::dl_phdr_info) -> Self {
        let headers = match info.dlpi_phdr.is_null() {
            true => &[],
            // SAFETY: the loader says that this many headers lie there.
            false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) },
        };
        Self { base: info.dlpi_addr, headers, name: info.dlpi_name }
    }

    /// The loaded segment that holds an address.
    fn segment(&self, address: u64) -> Option<&libc::Elf64_Phdr> {
        let holds = |header: &&libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD
                && address.checked_sub(self.base.wrapping_add(header.p_vaddr)).is_some_and(|at| at < header.p_memsz)
        };
        self.headers.iter().find(holds)
    }

    fn has_code_at(&self, address: u64) -> bool {
        self.segment(address).is_some_and(|header| header.p_flags & libc::PF_X != 0)
    }

    /// Is it loaded as long as this code is? The program is, so is the module with this code, and the C
    /// library that both need.
    fn stays(&self, is_first: bool) -> bool {
        let ours = find as fn(u64) -> Found as usize as u64;
        let library = libc::dl_iterate_phdr as *const () as u64;
        (is_first && self.has_no_name()) || self.has_code_at(ours) || self.has_code_at(library)
    }

    /// The program has none, libraries do.
    fn has_no_name(&self) -> bool {
        // SAFETY: the loader's name is a C string that lives as long as the module is loaded.
        self.name.is_null() || unsafe { *self.name } == 0
    }

    fn frames(&self) -> Option<Frames<'a>> {
        let header = self.headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
        let address = self.base.wrapping_add(header.p_vaddr);
        let index = self.bytes(address, header.p_memsz)?;
        let entries_address = cfi::entries_address(index, address)?;
        let holder = self.segment(entries_address)?;
        let end = self.base.wrapping_add(holder.p_vaddr).checked_add(holder.p_filesz)?;
        let entries = self.bytes(entries_address, end.checked_sub(entries_address)?)?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(address).set_eh_frame(entries_address);
        Some(Frames { index, entries, bases })
    }

    /// A part of the module, if it is read-only data of a loaded segment from its file.
    fn bytes(&self, address: u64, length: u64) -> Option<&'a [u8]> {
        let header = self.segment(address)?;
        let at = address.checked_sub(self.base.wrapping_add(header.p_vaddr))?;
        if header.p_flags & libc::PF_R == 0 || at.checked_add(length)? > header.p_filesz {
            return None;
        }
        // SAFETY: the loader mapped this part of a readable segment, and keeps it while it calls `visit`.
        Some(unsafe { std::slice::from_raw_parts(address as *const u8, length as usize) })
    }
}
