//! Call frame information (CFI, `.eh_frame`) of a return address, translated to a [`Rule`].

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, Encoding, EndianSlice, FrameDescriptionEntry, NativeEndian, Operation,
    Pointer, Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression, UnwindSection,
    UnwindTableRow,
};

use super::rule::{Base, Rule};
use crate::record::unwind::arch;

pub(super) type SectionBytes<'a> = EndianSlice<'a, NativeEndian>;

/// Storage for CFI rows on the stack. gimli's default is on the heap.
#[derive(Debug)]
pub(super) struct OnStack;

impl UnwindContextStorage<usize> for OnStack {
    type Rules = [(Register, RegisterRule<usize>); 24];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

type CfiRow = UnwindTableRow<usize, OnStack>;

/// A loaded object's `.eh_frame_hdr` and `.eh_frame`, with their addresses.
#[derive(Debug)]
pub(super) struct CfiSections<'a> {
    pub(super) index: &'a [u8],
    pub(super) entries: &'a [u8],
    pub(super) bases: BaseAddresses,
}

/// The address of `.eh_frame` that the header contains.
pub(super) fn entries_address(index: &[u8], address: u64) -> Option<u64> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(address);
    match EhFrameHdr::new(index, NativeEndian).parse(&bases, 8).ok()?.eh_frame_ptr() {
        Pointer::Direct(address) => Some(address),
        Pointer::Indirect(_) => None,
    }
}

impl CfiSections<'_> {
    /// The rule for the instruction at `address`. `None` if there is no CFI or [`Rule`] cannot express it.
    pub(super) fn rule_at(&self, address: u64) -> Option<Rule> {
        let mut entries = EhFrame::new(self.entries, NativeEndian);
        entries.set_vendor(arch::VENDOR);
        let index = EhFrameHdr::new(self.index, NativeEndian).parse(&self.bases, 8).ok()?;
        let cie = |section: &EhFrame<_>, bases: &_, offset| section.cie_from_offset(bases, offset);
        let entry = index.table()?.fde_for_address(&entries, &self.bases, address, cie).ok()?;
        rule_of_entry(&entry, &entries, &self.bases, address)
    }
}

pub(super) fn rule_of_entry(
    entry: &FrameDescriptionEntry<SectionBytes<'_>>,
    entries: &EhFrame<SectionBytes<'_>>,
    bases: &BaseAddresses,
    address: u64,
) -> Option<Rule> {
    // In a signal frame, the interrupted code may have anything in its registers.
    if entry.is_signal_trampoline() {
        return None;
    }
    let mut context = UnwindContext::<usize, OnStack>::new_in();
    let row = entry.unwind_info_for_address(entries, bases, &mut context, address).ok()?;
    rule_of(row, entries, entry.cie().encoding())
}

/// Translates a row. `None` if no rule expresses it exactly.
fn rule_of(row: &CfiRow, entries: &EhFrame<SectionBytes<'_>>, encoding: Encoding) -> Option<Rule> {
    // Without a rule for sp, the caller's sp is the CFA.
    if row.register(arch::SP).is_some() {
        return None;
    }
    let returns = row.register(arch::RETURN)?;
    if returns == RegisterRule::Undefined {
        return Some(Rule::OUTERMOST);
    }
    let rule = match row.cfa() {
        CfaRule::RegisterAndOffset { register: arch::SP, offset } => Rule::new(Base::Sp, *offset, saved(row)?),
        CfaRule::RegisterAndOffset { register: arch::FP, offset } => Rule::new(Base::Fp, *offset, saved(row)?),
        CfaRule::RegisterAndOffset { .. } => None,
        CfaRule::Expression(cfa) => realigned(row, cfa, entries, encoding),
    };
    rule.filter(|rule| returns == RegisterRule::Offset(rule.return_offset()))
}

/// Offset of the saved fp from the CFA. The inner `None` means that the caller's fp is still in the register.
fn saved(row: &CfiRow) -> Option<Option<i64>> {
    match row.register(arch::FP) {
        // fp is callee-saved: without a rule it is unchanged.
        None | Some(RegisterRule::SameValue) => Some(None),
        Some(RegisterRule::Offset(offset)) => Some(Some(offset)),
        _ => None,
    }
}

/// The rule of a realigned frame as GCC emits it: CFA and saved fp are in memory at offsets from fp.
fn realigned(
    row: &CfiRow,
    cfa: &UnwindExpression<usize>,
    entries: &EhFrame<SectionBytes<'_>>,
    encoding: Encoding,
) -> Option<Rule> {
    let Some(RegisterRule::Expression(fp)) = row.register(arch::FP) else { return None };
    let offset = beside_fp(cfa, true, entries, encoding)?;
    let saved = beside_fp(&fp, false, entries, encoding)?;
    Rule::new(Base::AtFp, offset, Some(saved))
}

/// The n of an expression that is exactly fp + n, or with `word` exactly the word at fp + n.
fn beside_fp(
    expression: &UnwindExpression<usize>,
    word: bool,
    entries: &EhFrame<SectionBytes<'_>>,
    encoding: Encoding,
) -> Option<i64> {
    let mut operations = expression.get(entries).ok()?.operations(encoding);
    let Operation::RegisterOffset { register: arch::FP, offset, .. } = operations.next().ok()?? else { return None };
    if word {
        let Operation::Deref { size: 8, space: false, .. } = operations.next().ok()?? else { return None };
    }
    operations.next().ok()?.is_none().then_some(offset)
}
