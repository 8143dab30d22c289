//! The text of a range.
#![expect(unsafe_code, reason = "reads strings and structures of C's")]

use std::ffi::c_void;
use std::mem::offset_of;
use std::slice;

use libc::wchar_t;

/// The most bytes of a message that are kept.
const MOST: usize = 256;

const ELLIPSIS: char = '…';

/// The beginning of a message as text, made without an allocation. Empty if there is no message.
#[derive(Debug)]
pub(super) struct Message {
    bytes: [u8; MOST + ELLIPSIS.len_utf8()],
    length: usize,
    is_cut: bool,
}

impl Message {
    const fn empty() -> Self {
        Self { bytes: [0; MOST + ELLIPSIS.len_utf8()], length: 0, is_cut: false }
    }

    /// Reads a string of bytes. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Safety
    /// `message` is null or the address of a string that ends with a zero.
    pub(super) unsafe fn of_bytes(message: *const u8) -> Self {
        let mut made = Self::empty();
        if message.is_null() {
            return made;
        }
        // The last character of these bytes may be cut. It is never kept, because it lies behind the first `MOST`
        // bytes.
        // SAFETY: as the caller promises.
        let length = unsafe { libc::strnlen(message.cast(), MOST + 4) };
        // SAFETY: these bytes were just read.
        let bytes = unsafe { slice::from_raw_parts(message, length) };
        for chunk in bytes.utf8_chunks() {
            let invalid = (!chunk.invalid().is_empty()).then_some(char::REPLACEMENT_CHARACTER);
            chunk.valid().chars().chain(invalid).for_each(|character| made.push(character));
        }
        made
    }

    /// Reads a string of wide characters. Numbers that are no characters become U+FFFD.
    ///
    /// # Safety
    /// As for [`of_bytes`](Self::of_bytes).
    pub(super) unsafe fn of_wide(message: *const wchar_t) -> Self {
        let mut made = Self::empty();
        let mut at = message;
        while !at.is_null() && !made.is_cut {
            // SAFETY: the string has not ended before.
            let number = unsafe { at.read() };
            if number == 0 {
                break;
            }
            let character = u32::try_from(number).ok().and_then(char::from_u32);
            made.push(character.unwrap_or(char::REPLACEMENT_CHARACTER));
            at = at.wrapping_add(1);
        }
        made
    }

    pub(super) fn text(&self) -> &str {
        self.bytes.get(..self.length).and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    /// Adds a character. If there is no room for it, adds an ellipsis once.
    fn push(&mut self, character: char) {
        if self.is_cut {
            return;
        }
        self.is_cut = self.length + character.len_utf8() > MOST;
        let character = if self.is_cut { ELLIPSIS } else { character };
        let end = self.length + character.len_utf8();
        if let Some(room) = self.bytes.get_mut(self.length..end) {
            character.encode_utf8(room);
            self.length = end;
        }
    }
}

/// A range's attributes in NVTX's layout, up to the last field that is read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    _version: u16,
    size: u16,
    _category: u32,
    _color: [u32; 2],
    _payload: [u32; 4],
    message_type: i32,
    message: *const c_void,
}

const ASCII: i32 = 1;
const WIDE: i32 = 2;
const REGISTERED: i32 = 3;

impl Attributes {
    /// The attributes; `None` for null, and for a structure whose own size field says that it is smaller than `Self`.
    ///
    /// # Safety
    /// `attributes` is null, or the address of a structure that is as large as it says.
    unsafe fn read(attributes: *const Self) -> Option<Self> {
        if attributes.is_null() {
            return None;
        }
        let size = attributes.wrapping_byte_add(offset_of!(Self, size)).cast::<u16>();
        // SAFETY: as the caller promises.
        let size = unsafe { size.read_unaligned() };
        if usize::from(size) < size_of::<Self>() {
            return None;
        }
        // SAFETY: as the caller promises.
        Some(unsafe { attributes.read_unaligned() })
    }

    /// The number of the registered string that is the message; `None` if the message is of another type.
    ///
    /// # Safety
    /// `attributes` is null, or the address of a structure that is as large as it says.
    pub(super) unsafe fn registered(attributes: *const Self) -> Option<usize> {
        // SAFETY: as the caller promises.
        let attributes = unsafe { Self::read(attributes) }?;
        (attributes.message_type == REGISTERED).then_some(attributes.message.addr())
    }

    /// The message, if it is a string.
    ///
    /// # Safety
    /// `attributes` is null, or the address of a structure that is as large as it says. Its message has the type that
    /// it says.
    pub(super) unsafe fn message(attributes: *const Self) -> Message {
        // SAFETY: as the caller promises.
        match unsafe { Self::read(attributes) } {
            // SAFETY: as the caller promises.
            Some(Self { message_type: ASCII, message, .. }) => unsafe { Message::of_bytes(message.cast()) },
            // SAFETY: as the caller promises.
            Some(Self { message_type: WIDE, message, .. }) => unsafe { Message::of_wide(message.cast()) },
            _ => Message::empty(),
        }
    }
}
