//! Images from which modules are loaded: PTX, cubins, and fat binaries that contain several of these.

use std::ffi::{CStr, c_char};

use super::{cubin, fat_binary, ptx};
use crate::hook::cuda::pointers::{self, CallerPtr};
use crate::record::memory::{OwnVec, own_vec};
use crate::record::uses::KernelEntry;

/// First bytes of a program's wrapper for a fat binary linked into it: two numbers, and the address of the fat binary.
const WRAPPER: [u8; 4] = 0x4662_43B1_u32.to_le_bytes();

/// The kernels in an image that the driver has accepted.
pub(super) fn in_memory(image: *const c_char) -> OwnVec<KernelEntry> {
    entries(whole(image).unwrap_or_default())
}

fn whole<'a>(image: *const c_char) -> Option<&'a [u8]> {
    match start(image)? {
        cubin::MAGIC => pointers::elf_file(image.cast()),
        fat_binary::MAGIC => pointers::fat_binary(image.cast()),
        WRAPPER => {
            let at = CallerPtr::from_raw(image).part::<usize>(8).read_unaligned()?;
            let image = std::ptr::with_exposed_provenance::<c_char>(at);
            start(image).filter(|start| *start == fat_binary::MAGIC).and_then(|_| pointers::fat_binary(image.cast()))
        }
        _ => pointers::text(image).map(CStr::to_bytes),
    }
}

fn start(image: *const c_char) -> Option<[u8; 4]> {
    CallerPtr::<[u8; 4]>::from_raw(image.cast()).read()
}

/// The kernels in a whole file.
pub(super) fn entries(file: &[u8]) -> OwnVec<KernelEntry> {
    if file.starts_with(&fat_binary::MAGIC) { of_fat_binary(file) } else { of_one(file) }
}

fn of_one(file: &[u8]) -> OwnVec<KernelEntry> {
    if file.starts_with(&cubin::MAGIC) { cubin::entries(file) } else { ptx::entries(file) }
}

/// It is not known which image the driver chose, but all have the same code. A kernel on whose layout they disagree has
/// none.
fn of_fat_binary(file: &[u8]) -> OwnVec<KernelEntry> {
    let mut entries = own_vec(fat_binary::plain_images(file).flat_map(of_one));
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    entries.dedup_by(|one, kept| {
        let is_same = one.name == kept.name;
        if is_same && one.layout != kept.layout {
            kept.layout = None;
        }
        is_same
    });
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &[u8] = include_bytes!("../../../../tests/cuda/cubins/kernels.ptx");
    const CUBIN: &[u8] = include_bytes!("../../../../tests/cuda/cubins/sm_52.cubin");
    /// Made of this cubin and the compressed PTX by NVIDIA's tool.
    const FAT_BINARY: &[u8] = include_bytes!("../../../../tests/cuda/cubins/kernels.fatbin");

    fn known(entries: &OwnVec<KernelEntry>) -> Vec<(String, Option<Vec<u32>>)> {
        let sizes = |entry: &KernelEntry| Some(entry.layout.as_ref()?.iter().map(|known| known.size).collect());
        let mut known: Vec<_> =
            entries.iter().map(|entry| (String::from_utf8_lossy(&entry.name).into_owned(), sizes(entry))).collect();
        known.sort();
        known
    }

    /// A fat binary that contains these images uncompressed.
    fn fat_binary_of(images: &[(u16, &[u8])]) -> Vec<u8> {
        let mut list = Vec::new();
        for (kind, image) in images {
            let size = image.len() as u64;
            list.extend_from_slice(
                &[&kind.to_le_bytes()[..], &[1, 1, 64, 0, 0, 0], &size.to_le_bytes(), &[0; 48]].concat(),
            );
            list.extend_from_slice(image);
        }
        [&fat_binary::MAGIC[..], &[1, 0, 16, 0], &(list.len() as u64).to_le_bytes(), &list].concat()
    }

    #[test]
    fn a_fat_binary_has_the_kernels_of_its_cubin_wherever_it_lies() {
        let expected = known(&entries(CUBIN));
        assert!(expected.len() >= 3);
        assert_eq!(known(&entries(FAT_BINARY)), expected);
        for shift in 0..8 {
            let mut place = vec![0u8; shift];
            place.extend_from_slice(FAT_BINARY);
            assert_eq!(known(&in_memory(place.as_ptr().wrapping_add(shift).cast())), expected, "{shift}");
        }
        let wrapper =
            [u64::from(u32::from_le_bytes(WRAPPER)) | 1 << 32, FAT_BINARY.as_ptr().expose_provenance() as u64, 0];
        assert_eq!(known(&in_memory(wrapper.as_ptr().cast())), expected);
    }

    #[test]
    fn images_that_do_not_agree_leave_a_kernel_without_a_layout() {
        let other = b".visible .entry add(.param .u64 a) {}\n.visible .entry only(.param .u32 n) {}\n";
        let found = known(&entries(&fat_binary_of(&[(2, CUBIN), (1, PTX), (1, other)])));
        let of = |name: &str| found.iter().find(|(known, _)| known == name).unwrap().1.clone();
        assert_eq!((of("add"), of("only")), (None, Some(vec![4])));
        let agreed = known(&entries(&fat_binary_of(&[(2, CUBIN), (1, PTX)])));
        assert_eq!(agreed, known(&entries(PTX)));
    }

    #[test]
    fn damaged_fat_binaries_have_fewer_kernels_or_none() {
        let whole = known(&entries(FAT_BINARY));
        for end in 0..FAT_BINARY.len() {
            assert!(entries(&FAT_BINARY[..end]).len() <= whole.len(), "{end} bytes");
        }
        for at in 0..FAT_BINARY.len() {
            let mut damaged = FAT_BINARY.to_vec();
            damaged[at] ^= 0xff;
            assert!(entries(&damaged).len() <= whole.len() + 1, "byte {at}");
        }
    }
}
