//! Parser of fat binaries: files with the same code for several GPUs, as cubins and PTX.
//!
//! NVIDIA does not document the format. This parser follows what `fatbinary` 13.0 writes, and what is in the libraries
//! of CUDA 12 and 13. Images that are compressed with LZ4 are read, those with zstd are not: drivers that know zstd tell
//! the parameters of kernels themselves.

use crate::record::memory::{OwnVec, with_room};

pub(super) const MAGIC: [u8; 4] = 0xBA55_ED50_u32.to_le_bytes();
/// Offset of the header's own size in the header of a fat binary. The next offsets are in the header of an image.
const HEADER_SIZE: usize = 6;
const IMAGE_HEADER_SIZE: usize = 4;
const IMAGE_SIZE: usize = 8;
/// Offset of the compressed size, which is 0 for an image that is not compressed.
const COMPRESSED_SIZE: usize = 16;
const FLAGS: usize = 40;
const IS_LZ4: u64 = 0x2000;
/// Offset of the size that a compressed image has without compression.
const WHOLE_SIZE: usize = 56;
/// A larger image is not read.
const MOST: usize = 64 << 20;
const PTX: u16 = 1;
const CUBIN: u16 = 2;

/// A PTX text or a cubin in a fat binary.
pub(super) enum Image<'a> {
    Plain(&'a [u8]),
    /// An image that is compressed with LZ4, and its size without compression.
    Lz4(&'a [u8], usize),
    /// An image that is compressed otherwise, or is too large. It is not read.
    Other(#[cfg_attr(not(test), expect(dead_code, reason = "a test reads it"))] &'a [u8]),
}

impl Image<'_> {
    /// Runs a closure on the image's bytes. A compressed image is unpacked into memory of memtrace's own. `None` if the
    /// image cannot be read or there is no memory.
    pub(super) fn with_bytes<T>(&self, act: impl FnOnce(&[u8]) -> T) -> Option<T> {
        match *self {
            Self::Plain(bytes) => Some(act(bytes)),
            Self::Lz4(bytes, size) => {
                let mut whole: OwnVec<u8> = with_room(size)?;
                whole.resize(size, 0);
                let written = lz4_flex::block::decompress_into(bytes, &mut whole).ok()?;
                (written == size).then(|| act(&whole))
            }
            Self::Other(_) => None,
        }
    }
}

/// The cubins and PTX texts of a fat binary.
pub(super) fn images(file: &[u8]) -> impl Iterator<Item = Image<'_>> {
    let mut rest = number(file, HEADER_SIZE).and_then(|size| file.get(usize::from(u16::from_le_bytes(size))..));
    std::iter::from_fn(move || {
        let (image, after) = next(rest.filter(|rest| !rest.is_empty())?)?;
        rest = Some(after);
        Some(image)
    })
    .flatten()
}

/// The next image, if it is a cubin or PTX, and the bytes after it.
fn next(list: &[u8]) -> Option<(Option<Image<'_>>, &[u8])> {
    let header = u32::from_le_bytes(number(list, IMAGE_HEADER_SIZE)?) as usize;
    let size = usize::try_from(u64::from_le_bytes(number(list, IMAGE_SIZE)?)).ok()?;
    let end = header.checked_add(size).filter(|end| *end > 0)?;
    let (head, body) = list.get(..end)?.split_at_checked(header)?;
    let is_read = matches!(u16::from_le_bytes(number(list, 0)?), PTX | CUBIN);
    let image = match u32::from_le_bytes(number(list, COMPRESSED_SIZE)?) {
        0 => Some(Image::Plain(body)),
        size => body.get(..size as usize).map(|packed| lz4(head, packed).unwrap_or(Image::Other(packed))),
    };
    Some((image.filter(|_| is_read), list.get(end..)?))
}

fn lz4<'a>(head: &[u8], packed: &'a [u8]) -> Option<Image<'a>> {
    let is_lz4 = u64::from_le_bytes(number(head, FLAGS)?) & IS_LZ4 != 0;
    let whole = usize::try_from(u64::from_le_bytes(number(head, WHOLE_SIZE)?)).ok()?;
    (is_lz4 && whole <= MOST).then_some(Image::Lz4(packed, whole))
}

fn number<const SIZE: usize>(bytes: &[u8], at: usize) -> Option<[u8; SIZE]> {
    bytes.get(at..)?.first_chunk().copied()
}
