//! Variables of the environment. None counts in a program that has more rights than whoever started it: that one would
//! have files read and written with those rights.
#![cfg_attr(unix, expect(unsafe_code, reason = "what the kernel says of this process is asked by C functions"))]

use std::env;
use std::ffi::OsString;

/// A variable's value; set and empty is not set.
pub(crate) fn value(name: &str) -> Option<OsString> {
    read(has_others_rights(), || env::var_os(name))
}

fn read(others_rights: bool, value: impl FnOnce() -> Option<OsString>) -> Option<OsString> {
    if others_rights { None } else { value().filter(|value| !value.is_empty()) }
}

/// Set-user-id, set-group-id or capabilities of its file. May be called before `main`.
#[cfg(target_os = "linux")]
pub(crate) fn has_others_rights() -> bool {
    // SAFETY: it has no preconditions, and answers 0 for what the kernel did not say.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(all(unix, not(target_os = "linux")))]
pub(crate) fn has_others_rights() -> bool {
    // SAFETY: it has no preconditions.
    let user = unsafe { libc::getuid() };
    // SAFETY: likewise.
    let group = unsafe { libc::getgid() };
    // SAFETY: likewise.
    let acting_user = unsafe { libc::geteuid() };
    // SAFETY: likewise.
    let acting_group = unsafe { libc::getegid() };
    (user, group) != (acting_user, acting_group)
}

#[cfg(not(unix))]
pub(crate) fn has_others_rights() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_variable_counts_where_the_program_has_rights_of_others() {
        let set = || Some(OsString::from("1"));
        assert_eq!(read(false, set), set());
        assert_eq!(read(true, set), None);
        assert_eq!(read(false, || Some(OsString::new())), None);
        assert!(!has_others_rights() && value("PATH").is_some());
    }
}
