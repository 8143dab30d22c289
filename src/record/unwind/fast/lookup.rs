//! Look-up of unwind rules in the loaded objects.
//!
//! Objects are only read within `dl_iterate_phdr`'s callback, while the loader keeps them loaded. There is no list that
//! could be out of date, and objects that are loaded later are found like any other.
#![expect(unsafe_code, reason = "dl_iterate_phdr is a C function; reads loaded objects")]

use std::ffi::{c_int, c_void};

use gimli::BaseAddresses;

use super::cfi::{self, CfiSections};
use super::rule::Rule;

#[derive(Debug)]
pub(super) struct FoundRule {
    pub(super) rule: Rule,
    /// The loader's counts of loads and unloads at that moment.
    pub(super) counts: (u64, u64),
}

struct RuleSearch {
    address: u64,
    visited: usize,
    found: FoundRule,
}

/// The rule for the instruction at `address`.
pub(super) fn find(address: u64) -> FoundRule {
    let mut search = RuleSearch { address, visited: 0, found: FoundRule { rule: Rule::UNPROVEN, counts: (0, 0) } };
    let data: *mut RuleSearch = &mut search;
    // SAFETY: `visit` is called only during this call, with `data` as its last argument.
    unsafe { libc::dl_iterate_phdr(Some(visit), data.cast()) };
    search.found
}

/// # Safety
/// Called by `dl_iterate_phdr` in [`find`].
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid record.
    let info = unsafe { &*info };
    // SAFETY: the caller's search, used nowhere else meanwhile.
    let search = unsafe { &mut *search.cast::<RuleSearch>() };
    search.found.counts = (info.dlpi_adds, info.dlpi_subs);
    let module = ElfObject::of(info);
    search.visited += 1;
    if !module.has_code_at(search.address) {
        return 0;
    }
    let rule = module.frames().and_then(|frames| frames.rule_at(search.address)).unwrap_or(Rule::UNPROVEN);
    search.found.rule = if module.stays(search.visited == 1) { rule.that_stays() } else { rule };
    1
}

struct ElfObject<'a> {
    base: u64,
    headers: &'a [libc::Elf64_Phdr],
    name: *const libc::c_char,
}

impl<'a> ElfObject<'a> {
    fn of(info: &'a libc::dl_phdr_info) -> Self {
        let headers = match info.dlpi_phdr.is_null() {
            true => &[],
            // SAFETY: the loader guarantees this many headers.
            false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) },
        };
        Self { base: info.dlpi_addr, headers, name: info.dlpi_name }
    }

    /// The `PT_LOAD` segment that contains an address.
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

    /// Is it loaded as long as this code is? True for the program, the object with this code and the C library.
    fn stays(&self, is_first: bool) -> bool {
        let ours = find as fn(u64) -> FoundRule as usize as u64;
        let library = libc::dl_iterate_phdr as *const () as u64;
        (is_first && self.has_no_name()) || self.has_code_at(ours) || self.has_code_at(library)
    }

    /// Only the program has no name.
    fn has_no_name(&self) -> bool {
        // SAFETY: the loader's C string, valid while the object is loaded.
        self.name.is_null() || unsafe { *self.name } == 0
    }

    fn frames(&self) -> Option<CfiSections<'a>> {
        let header = self.headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
        let address = self.base.wrapping_add(header.p_vaddr);
        let index = self.bytes(address, header.p_memsz)?;
        let entries_address = cfi::entries_address(index, address)?;
        let holder = self.segment(entries_address)?;
        let end = self.base.wrapping_add(holder.p_vaddr).checked_add(holder.p_filesz)?;
        let entries = self.bytes(entries_address, end.checked_sub(entries_address)?)?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(address).set_eh_frame(entries_address);
        Some(CfiSections { index, entries, bases })
    }

    /// A range of the object, if it is readable and from its file.
    fn bytes(&self, address: u64, length: u64) -> Option<&'a [u8]> {
        let header = self.segment(address)?;
        let at = address.checked_sub(self.base.wrapping_add(header.p_vaddr))?;
        if header.p_flags & libc::PF_R == 0 || at.checked_add(length)? > header.p_filesz {
            return None;
        }
        // SAFETY: within a mapped, readable segment that stays loaded during the callback.
        Some(unsafe { std::slice::from_raw_parts(address as *const u8, length as usize) })
    }
}
