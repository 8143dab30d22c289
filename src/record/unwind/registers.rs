//! The registers that unwinding starts from.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    /// The address at which the frame continues after its call.
    pub(super) ip: u64,
    pub(super) sp: u64,
    /// Frame pointer.
    pub(super) fp: u64,
}
