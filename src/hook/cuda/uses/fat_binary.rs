//! Parser of fat binaries: files with the same code for several GPUs, as cubins and PTX.
//!
//! NVIDIA does not document the format. This parser follows what `fatbinary` 13.0 writes. By default it compresses PTX
//! and cubins with debug information, and leaves other cubins as they are. Compressed images (LZ4 or zstd) are not
//! read.

pub(super) const MAGIC: [u8; 4] = 0xBA55_ED50_u32.to_le_bytes();
/// Offset of the size of a header, in a fat binary and in an image in it.
const HEADER_SIZE: usize = 6;
const IMAGE_HEADER_SIZE: usize = 4;
const IMAGE_SIZE: usize = 8;
/// 0 for an image that is not compressed.
const COMPRESSED_SIZE: usize = 16;
const PTX: u16 = 1;
const CUBIN: u16 = 2;

/// The images that are PTX or cubins and are not compressed.
pub(super) fn plain_images(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = number(file, HEADER_SIZE).and_then(|size| file.get(usize::from(u16::from_le_bytes(size))..));
    std::iter::from_fn(move || {
        let (image, after) = next(rest.filter(|rest| !rest.is_empty())?)?;
        rest = Some(after);
        Some(image)
    })
    .flatten()
}

/// The next image, if it is to be read, and the bytes after it.
fn next(list: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let header = u32::from_le_bytes(number(list, IMAGE_HEADER_SIZE)?) as usize;
    let size = usize::try_from(u64::from_le_bytes(number(list, IMAGE_SIZE)?)).ok()?;
    let end = header.checked_add(size).filter(|end| *end > 0)?;
    let is_read = matches!(u16::from_le_bytes(number(list, 0)?), PTX | CUBIN);
    let is_plain = u32::from_le_bytes(number(list, COMPRESSED_SIZE)?) == 0;
    let image = list.get(header..end)?;
    Some(((is_read && is_plain).then_some(image), list.get(end..)?))
}

fn number<const SIZE: usize>(bytes: &[u8], at: usize) -> Option<[u8; SIZE]> {
    bytes.get(at..)?.first_chunk().copied()
}
