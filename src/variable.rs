//! Environment variables. Privileged programs (set-user-id, set-group-id, file capabilities) ignore them. Otherwise the
//! user who starts such a program could make it read and write files with its privileges.
#![cfg_attr(unix, expect(unsafe_code, reason = "queries process credentials with C functions"))]

use std::env;
use std::ffi::OsString;

/// A variable's value; an empty value counts as unset.
pub(crate) fn value(name: &str) -> Option<OsString> {
    read(is_privileged(), || env::var_os(name))
}

fn read(is_privileged: bool, value: impl FnOnce() -> Option<OsString>) -> Option<OsString> {
    if is_privileged { None } else { value().filter(|value| !value.is_empty()) }
}

/// Whether the program has more rights than the user who started it. May be called before `main`.
#[cfg(target_os = "linux")]
pub(crate) fn is_privileged() -> bool {
    // SAFETY: no preconditions; the result is 0 if the kernel did not pass the entry.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(all(unix, not(target_os = "linux")))]
pub(crate) fn is_privileged() -> bool {
    // SAFETY: no preconditions.
    let user = unsafe { libc::getuid() };
    // SAFETY: no preconditions.
    let group = unsafe { libc::getgid() };
    // SAFETY: no preconditions.
    let acting_user = unsafe { libc::geteuid() };
    // SAFETY: no preconditions.
    let acting_group = unsafe { libc::getegid() };
    (user, group) != (acting_user, acting_group)
}

#[cfg(not(unix))]
pub(crate) fn is_privileged() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_variable_counts_in_a_privileged_program() {
        let set = || Some(OsString::from("1"));
        assert_eq!(read(false, set), set());
        assert_eq!(read(true, set), None);
        assert_eq!(read(false, || Some(OsString::new())), None);
        assert!(!is_privileged() && value("PATH").is_some());
    }
}
