//! Unknown.

pub(super) fn soon(_thread: u32) -> bool {
    true
}
