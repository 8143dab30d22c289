//! Images from which modules are loaded: PTX, cubins, and fat binaries that contain several of these.

use std::ffi::{CStr, c_char};

use super::fat_binary::{self, Image};
use super::{cubin, ptx};
use crate::hook::cuda::driver::Function;
use crate::hook::cuda::pointers::{self, CallerPtr};
use crate::record::memory::{OwnVec, own_vec};
use crate::record::uses::KernelEntry;

/// First bytes of the wrapper of a fat binary that is linked into a program. A wrapper has two numbers (these bytes are
/// the first) and the address of the fat binary.
const WRAPPER: [u8; 4] = 0x4662_43B1_u32.to_le_bytes();

/// The kernels in an image that the driver has accepted.
pub(super) fn in_memory(image: *const c_char) -> OwnVec<KernelEntry> {
    entries(whole(image).unwrap_or_default())
}

/// The kernels in a whole file.
pub(super) fn entries(file: &[u8]) -> OwnVec<KernelEntry> {
    entries_of(file, driver_tells_no_parameters)
}

/// Compressed images take time, so they are read only if the driver does not report the parameters of kernels itself.
/// Drivers before 12.4 do not.
fn driver_tells_no_parameters() -> bool {
    static TELLS: Function = Function::named("cuFuncGetParamInfo\0");
    TELLS.address().is_none()
}

fn entries_of(file: &[u8], reads_compressed: fn() -> bool) -> OwnVec<KernelEntry> {
    if file.starts_with(&fat_binary::MAGIC) { of_fat_binary(file, reads_compressed) } else { of_one(file) }
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

fn of_one(file: &[u8]) -> OwnVec<KernelEntry> {
    if file.starts_with(&cubin::MAGIC) { cubin::entries(file) } else { ptx::entries(file) }
}

/// The kernels in a fat binary. It is not known which of its images the driver chose, but all were made from the same
/// code. If the images disagree about a kernel's layout, this layout is unknown.
fn of_fat_binary(file: &[u8], reads_compressed: fn() -> bool) -> OwnVec<KernelEntry> {
    let images = fat_binary::images(file).filter(|image| matches!(image, Image::Plain(_)) || reads_compressed());
    let mut entries = own_vec(images.filter_map(|image| image.with_bytes(of_one)).flatten());
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
    const LARGER: &[u8] = include_bytes!("../../../../tests/cuda/cubins/sm_90.cubin");
    /// Made by NVIDIA's `fatbinary` 13.0: of the first cubin and the compressed PTX; of all three, compressed with LZ4; of
    /// the second cubin, compressed with zstd.
    const FAT_BINARY: &[u8] = include_bytes!("../../../../tests/cuda/cubins/kernels.fatbin");
    const LZ4: &[u8] = include_bytes!("../../../../tests/cuda/cubins/lz4.fatbin");
    const ZSTD: &[u8] = include_bytes!("../../../../tests/cuda/cubins/zstd.fatbin");

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
    fn images_that_are_compressed_with_lz4_are_as_if_they_were_not() {
        let expected = known(&entries(&fat_binary_of(&[(2, CUBIN), (2, LARGER), (1, PTX)])));
        assert!(expected.len() >= 4);
        assert_eq!(known(&entries_of(LZ4, || true)), expected);
        assert_eq!(known(&entries_of(LZ4, || false)), []);
        assert_eq!(known(&entries_of(ZSTD, || true)), []);
    }

    #[test]
    fn a_compressed_image_is_as_large_as_it_says_or_is_not_read() {
        let first = 16..1264;
        let size = (first.len() as u64).to_le_bytes();
        let alone = [&LZ4[..8], &size, &LZ4[first]].concat();
        assert_eq!(known(&entries(&alone)), known(&entries(CUBIN)));
        let length = CUBIN.len() as u64;
        for size in [0, 1, length - 1, length + 1, 64 << 20, (64 << 20) + 1, 1 << 40, u64::MAX] {
            let mut other = alone.clone();
            other[16 + 56..][..8].copy_from_slice(&size.to_le_bytes());
            assert_eq!(known(&entries(&other)), [], "{size}");
        }
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
        for file in [FAT_BINARY, LZ4] {
            let whole = known(&entries(file)).len();
            for end in 0..file.len() {
                assert!(entries(&file[..end]).len() <= whole, "{end} bytes");
            }
            for at in 0..file.len() {
                let mut damaged = file.to_vec();
                damaged[at] ^= 0xff;
                assert!(entries(&damaged).len() <= whole + 4, "byte {at}");
            }
        }
    }

    /// `MEMTRACE_TEST_HOURS=1` goes on for an hour.
    #[test]
    fn whatever_is_damaged_the_reader_ends() {
        let hours: f64 = std::env::var("MEMTRACE_TEST_HOURS").map_or(0.0, |hours| hours.parse().unwrap());
        let (began, mut cases, mut draw) = (std::time::Instant::now(), 0_u64, Draw(1));
        while cases < 2000 || began.elapsed().as_secs_f64() < hours * 3600.0 {
            let files = [FAT_BINARY, LZ4, ZSTD, CUBIN, LARGER, PTX];
            let mut file = files[draw.below(files.len())].to_vec();
            for _ in 0..=draw.below(8) {
                let (at, other) = (draw.below(file.len()), files[draw.below(files.len())]);
                match draw.below(5) {
                    0 => file[at] = draw.below(256) as u8,
                    1 => file[at] ^= 1 << draw.below(8),
                    2 => file.truncate(at.max(1)),
                    3 => _ = file.splice(at.., other[draw.below(other.len())..].iter().copied()),
                    _ => file.iter_mut().skip(at).take(8).for_each(|byte| *byte = 0xff),
                }
            }
            entries(&file);
            cases += 1;
        }
        println!("{cases} damaged files");
    }

    /// Random numbers (xorshift).
    struct Draw(u64);

    impl Draw {
        fn below(&mut self, end: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as usize % end
        }
    }
}
