//! Look-up of unwind rules in the loaded objects.
//!
//! Objects are only read within the callback of `dl_iterate_phdr`, while the loader keeps them loaded. No list of
//! objects is kept, so none can be out of date, and objects that are loaded later are found like any other.
#![expect(unsafe_code, reason = "reads loaded objects")]

use std::ops::ControlFlow;

use gimli::BaseAddresses;

use super::cfi::{self, CfiSections};
use super::rule::Rule;
use crate::elf;
use crate::record::unwind::objects::counts_of;

#[derive(Debug)]
pub(super) struct FoundRule {
    pub(super) rule: Rule,
    /// The loader's counts of loads and unloads at the time of the look-up.
    pub(super) counts: (u64, u64),
}

/// The rule for the instruction at `address`.
pub(super) fn find(address: u64) -> FoundRule {
    let mut found = FoundRule { rule: Rule::UNPROVEN, counts: (0, 0) };
    let mut is_first = true;
    elf::each_object(|info| {
        found.counts = counts_of(info);
        let object = ElfObject { info };
        if object.has_code_at(address) {
            let rule = object.frames().and_then(|frames| frames.rule_at(address)).unwrap_or(Rule::UNPROVEN);
            found.rule = if object.stays(is_first) { rule.that_stays() } else { rule };
            return ControlFlow::Break(());
        }
        is_first = false;
        ControlFlow::Continue(())
    });
    found
}

struct ElfObject<'a> {
    info: &'a libc::dl_phdr_info,
}

impl<'a> ElfObject<'a> {
    fn address(&self, header: &libc::Elf64_Phdr) -> u64 {
        self.info.dlpi_addr.wrapping_add(header.p_vaddr)
    }

    /// The `PT_LOAD` segment that contains an address.
    fn segment(&self, address: u64) -> Option<&libc::Elf64_Phdr> {
        let holds = |header: &&libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD
                && address.checked_sub(self.address(header)).is_some_and(|at| at < header.p_memsz)
        };
        elf::headers(self.info).iter().find(holds)
    }

    fn has_code_at(&self, address: u64) -> bool {
        self.segment(address).is_some_and(|header| header.p_flags & libc::PF_X != 0)
    }

    /// Whether the object is loaded as long as this code is: the program (the only object without a name), the object
    /// with this code, and the C library.
    fn stays(&self, is_first: bool) -> bool {
        let ours = find as fn(u64) -> FoundRule as usize as u64;
        let library = libc::dl_iterate_phdr as *const () as u64;
        (is_first && elf::path(self.info).is_empty()) || self.has_code_at(ours) || self.has_code_at(library)
    }

    fn frames(&self) -> Option<CfiSections<'a>> {
        let header = elf::headers(self.info).iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
        let address = self.address(header);
        let index = self.bytes(address, header.p_memsz)?;
        let entries_address = cfi::entries_address(index, address)?;
        let holder = self.segment(entries_address)?;
        let end = self.address(holder).checked_add(holder.p_filesz)?;
        let entries = self.bytes(entries_address, end.checked_sub(entries_address)?)?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(address).set_eh_frame(entries_address);
        Some(CfiSections { index, entries, bases })
    }

    /// A range of the object, if it is readable and comes from the object's file.
    fn bytes(&self, address: u64, length: u64) -> Option<&'a [u8]> {
        let header = self.segment(address)?;
        let at = address.checked_sub(self.address(header))?;
        if header.p_flags & libc::PF_R == 0 || at.checked_add(length)? > header.p_filesz {
            return None;
        }
        // SAFETY: within a mapped, readable segment that stays loaded during the callback.
        Some(unsafe { std::slice::from_raw_parts(address as *const u8, length as usize) })
    }
}
