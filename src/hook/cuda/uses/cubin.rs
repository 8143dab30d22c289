//! Parser of kernel signatures in cubins. A cubin is an ELF file with a section `.nv.info.KERNEL` for each kernel.
//!
//! NVIDIA does not document these sections. A section is a list of attributes. Each consists of a byte that tells how
//! the value's length is given (the form), a byte for the kind, and the value. `ptxas` writes one attribute for each
//! parameter, and one for the total size.

use object::LittleEndian as LE;
use object::elf::{EM_CUDA, FileHeader64};
use object::read::elf::{FileHeader, SectionHeader, SectionTable};

use crate::record::memory::{OwnVec, System, own_vec, try_copy};
use crate::record::uses::{ArgumentLayout, KernelEntry, Parameter, add_parameter};

pub(super) const MAGIC: [u8; 4] = *b"\x7fELF";
const SECTION: &[u8] = b".nv.info.";
/// The form in which the two bytes after the kind are the value's length. In smaller forms they are the value itself.
const WITH_LENGTH: u8 = 4;
const PARAMETER: u8 = 0x17;
/// The same as `PARAMETER`, for kernels with more than 4 KiB of parameters.
const LARGE_PARAMETER: u8 = 0x45;
const SIZE_OF_ALL: u8 = 0x19;

/// The kernels in a file.
pub(super) fn entries(file: &[u8]) -> OwnVec<KernelEntry> {
    let Some(sections) = sections(file) else { return OwnVec::new_in(System) };
    own_vec(sections.iter().filter_map(|section| {
        let name = sections.section_name(LE, section).ok()?.strip_prefix(SECTION)?;
        entry(name, section.data(LE, file).ok()?)
    }))
}

fn sections(file: &[u8]) -> Option<SectionTable<'_, FileHeader64<LE>>> {
    let header = FileHeader64::<LE>::parse(file).ok()?;
    if header.e_machine.get(LE) == EM_CUDA { header.sections(LE, file).ok() } else { None }
}

fn entry(name: &[u8], attributes: &[u8]) -> Option<KernelEntry> {
    Some(KernelEntry { name: try_copy(name)?, layout: layout(attributes) })
}

/// The layout in a kernel's attributes. `None` unless every parameter is there, and the end of the last one agrees with
/// the total size.
fn layout(mut attributes: &[u8]) -> Option<ArgumentLayout> {
    let (mut layout, mut found, mut end, mut size_of_all) = (OwnVec::new_in(System), 0, 0, 0);
    while let Some((kind, value)) = next(&mut attributes)? {
        if kind == SIZE_OF_ALL {
            size_of_all = u32::from(u16::from_le_bytes(value.try_into().ok()?));
        }
        let Some((at, offset, size)) = parameter(kind, value) else { continue };
        while layout.len() <= at {
            add_parameter(&mut layout, Parameter { size: 0, is_const: false })?;
        }
        layout.get_mut(at).filter(|place| place.size == 0)?.size = size;
        found += 1;
        end = end.max(offset.checked_add(size)?);
    }
    (found == layout.len() && end == size_of_all).then_some(layout)
}

/// Kind and value of the next attribute. The inner `None` means the end, the outer `None` a damaged list.
fn next<'a>(rest: &mut &'a [u8]) -> Option<Option<(u8, &'a [u8])>> {
    if rest.is_empty() {
        return Some(None);
    }
    let ([form, kind, value @ ..], after) = rest.split_first_chunk::<4>()?;
    let (value, after) = match *form {
        WITH_LENGTH => after.split_at_checked(usize::from(u16::from_le_bytes(*value)))?,
        1..WITH_LENGTH => (&value[..], after),
        _ => return None,
    };
    *rest = after;
    Some(Some((*kind, value)))
}

/// Number, offset and size of a parameter.
fn parameter(kind: u8, value: &[u8]) -> Option<(usize, u32, u32)> {
    let word = |at: usize| value.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let (place, size) = (word(4)?, word(8)?);
    let size = match kind {
        PARAMETER => size >> 18,
        LARGE_PARAMETER => size,
        _ => return None,
    };
    Some(((place & 0xffff) as usize, place >> 16, size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::cuda::uses::ptx;

    const PTX: &[u8] = include_bytes!("../../../../tests/cuda/cubins/kernels.ptx");
    /// Compiled from the PTX by NVIDIA's compiler.
    const CUBINS: [&[u8]; 3] = [
        include_bytes!("../../../../tests/cuda/cubins/sm_52.cubin"),
        include_bytes!("../../../../tests/cuda/cubins/sm_90.cubin"),
        include_bytes!("../../../../tests/cuda/cubins/sm_100.cubin"),
    ];

    /// Names, and the sizes of the parameters.
    type Signatures = Vec<(String, Option<Vec<u32>>)>;

    fn signatures(entries: OwnVec<KernelEntry>) -> Signatures {
        let sizes = |layout: &ArgumentLayout| layout.iter().map(|known| known.size).collect();
        let of =
            |entry: &KernelEntry| (String::from_utf8_lossy(&entry.name).into_owned(), entry.layout.as_ref().map(sizes));
        let mut all: Signatures = entries.iter().map(of).collect();
        all.sort();
        all
    }

    #[test]
    fn a_cubin_has_the_signatures_of_its_ptx() {
        let of_ptx = signatures(ptx::entries(PTX));
        assert_eq!(of_ptx.len(), 4);
        for cubin in CUBINS {
            let known = signatures(entries(cubin));
            let expected: Signatures =
                of_ptx.iter().filter(|(name, _)| known.iter().any(|(other, _)| other == name)).cloned().collect();
            assert_eq!(known, expected);
            assert!(known.len() >= 3);
        }
    }

    #[test]
    fn a_cubin_may_lie_at_any_address() {
        for shift in 0..8 {
            let mut place = vec![0u8; shift];
            place.extend_from_slice(CUBINS[0]);
            let start = place.as_ptr().wrapping_add(shift);
            let file = crate::hook::cuda::pointers::elf_file(start).unwrap();
            assert_eq!(signatures(entries(file)), signatures(entries(CUBINS[0])), "{shift}");
        }
    }

    #[test]
    fn damaged_cubins_have_fewer_signatures_or_none() {
        let whole = signatures(entries(CUBINS[1]));
        for end in 0..CUBINS[1].len() {
            entries(&CUBINS[1][..end]);
        }
        for at in 0..CUBINS[1].len() {
            let mut damaged = CUBINS[1].to_vec();
            damaged[at] ^= 0xff;
            assert!(entries(&damaged).len() <= whole.len() + 1, "byte {at}");
        }
        assert_eq!(signatures(entries(b"\x7fELF")), []);
    }
}
