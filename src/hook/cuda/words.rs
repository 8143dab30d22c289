//! What the calls of the driver are about, in memtrace's words: kinds of memory, devices, streams, requests and what came of
//! them.

use std::ffi::{c_int, c_void};

use super::pointers::CallerPtr;
use crate::snapshot::MemoryKind;

pub(super) type Pointer = u64;
pub(super) type Handle = *mut c_void;

/// What kind of memory a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Pool,
    Classic,
    Managed,
    Pinned,
    Registered,
    Virtual,
    /// As `Virtual`, but the host's.
    VirtualHost,
    Array,
    Graph,
    Imported,
}

impl Class {
    /// Of the host, and known to the driver.
    pub(super) fn is_pinned(self) -> bool {
        matches!(self, Self::Pinned | Self::Registered | Self::VirtualHost)
    }

    pub(super) fn memory(self) -> MemoryKind {
        match self {
            Self::Pool => MemoryKind::Pool,
            Self::Classic => MemoryKind::Classic,
            Self::Managed => MemoryKind::Managed,
            Self::Pinned => MemoryKind::Pinned,
            Self::Registered => MemoryKind::Registered,
            Self::Virtual | Self::VirtualHost => MemoryKind::Virtual,
            Self::Array => MemoryKind::Array,
            Self::Graph => MemoryKind::Graph,
            Self::Imported => MemoryKind::Imported,
        }
    }
}

/// Which device a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The stream's, if it is not one that every context has, else the current context's.
    Streams,
    /// Of that which the address belongs to: a pool may be another device's.
    Address,
    /// Named by the call.
    Ordinal(u32),
}

/// Where a call leaves the address of what it allocated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Address {
    Out(CallerPtr<u64>),
    Given(u64),
}

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Size {
    Plain(usize),
    /// The bytes of a row that the driver chose, those that were asked for, and the number of rows.
    Pitched(CallerPtr<usize>, usize, usize),
}

/// The stream that a call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stream(usize);

impl Stream {
    /// The call is not in the order of a stream.
    pub(super) const NONE: Self = Self(0);
    /// `CU_STREAM_LEGACY`, which is also what no stream means.
    pub(super) const LEGACY: Self = Self(1);
    /// `CU_STREAM_PER_THREAD`.
    pub(super) const PER_THREAD: Self = Self(2);

    pub(super) fn of(handle: *mut c_void) -> Self {
        if handle.is_null() { Self::LEGACY } else { Self(handle.addr()) }
    }

    pub(super) fn handle(self) -> usize {
        self.0
    }

    /// None, or a number instead of an object: each context has these streams.
    pub(super) fn is_special(self) -> bool {
        self.0 <= 2
    }
}

/// An allocation that was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) class: Class,
    pub(super) address: Address,
    pub(super) size: Size,
    pub(super) stream: Stream,
    pub(super) whose: Whose,
}

/// An allocation as it came out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) result: c_int,
    pub(super) class: Class,
    /// 0 if there is none.
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) stream: Stream,
    pub(super) whose: Whose,
    /// How long the driver took, in ticks.
    pub(super) took: u64,
}

/// A free that is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Release {
    pub(super) class: Class,
    pub(super) address: u64,
    /// As in [`Request`].
    pub(super) stream: Stream,
}

/// The beginning of `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct LocationOfPool {
    allocation: c_int,
    handles: c_int,
    kind: c_int,
    id: c_int,
}

impl LocationOfPool {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    const DEVICE: c_int = 1;

    #[cfg(test)]
    pub(super) fn on_device(id: c_int) -> Self {
        Self { allocation: 1, handles: 0, kind: Self::DEVICE, id }
    }

    /// The device's ordinal, if it is one.
    pub(super) fn ordinal(self) -> Option<u32> {
        if self.kind == Self::DEVICE { self.id.try_into().ok() } else { None }
    }
}
