//! Types shared by all hooks: kinds of memory, devices, CUDA streams, requests and their outcomes.

use std::ffi::{c_int, c_void};

use memtrace_core::snapshot::{Device, MemoryKind};

use super::driver::SUCCESS;
use super::pointers::CallerPtr;

pub(super) type Handle = *mut c_void;

/// The kind of memory that a call allocates or frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Pool,
    Classic,
    Managed,
    Pinned,
    Registered,
    Virtual,
    /// `cuMemCreate` for host memory.
    VirtualHost,
    Array,
    Graph,
    Imported,
}

impl Class {
    /// Whether the class is host memory that the driver knows.
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

/// How to find the device of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceHint {
    /// The device of the stream, or of the current context for the default streams.
    Stream,
    /// The device of the pool, by its handle.
    Pool(u64),
    Ordinal(u32),
}

/// What is known before a call that may allocate. After the call a query may give a wrong answer: another thread may
/// have ended the context, and the address may belong to another block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) device: Option<Device>,
    /// Only the address can show the device, because memtrace has not seen the pool's creation.
    pub(super) asks_address: bool,
    /// The stream's context. 0 if it is not needed, because there is no stream or only one device.
    pub(super) context: usize,
    /// Number of contexts that had ended before the call.
    pub(super) ended: u64,
}

/// Where the address of an allocation comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum AddressSource {
    Out(CallerPtr<u64>),
    Given(u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Size {
    Plain(usize),
    /// Bytes of a row as the driver chose them, bytes of a row as requested, and the number of rows.
    Pitched(CallerPtr<usize>, usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stream(usize);

impl Stream {
    /// The call is not ordered by a stream.
    pub(super) const NONE: Self = Self(0);
    /// `CU_STREAM_LEGACY`, the default meaning of a null stream.
    pub(super) const LEGACY: Self = Self(1);
    /// `CU_STREAM_PER_THREAD`.
    pub(super) const PER_THREAD: Self = Self(2);

    /// With `per_thread`, a null handle means the thread's own default stream.
    pub(super) fn of(handle: *mut c_void, per_thread: bool) -> Self {
        match handle.addr() {
            0 if per_thread => Self::PER_THREAD,
            0 => Self::LEGACY,
            address => Self(address),
        }
    }

    pub(super) fn handle(self) -> usize {
        self.0
    }

    /// Whether this is no stream, or a default stream. The default streams have the same handles in every context.
    pub(super) fn is_special(self) -> bool {
        self.0 <= 2
    }
}

/// An allocation before the driver call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) class: Class,
    pub(super) address: AddressSource,
    pub(super) size: Size,
    pub(super) stream: Stream,
    pub(super) hint: DeviceHint,
}

/// An allocation after the driver call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) result: c_int,
    pub(super) class: Class,
    /// 0 if there is no block.
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) stream: Stream,
    pub(super) place: Place,
    /// Time spent in the driver, in ticks.
    pub(super) took: u64,
}

/// A free before the driver call.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeRequest {
    pub(super) class: Class,
    pub(super) address: u64,
    pub(super) stream: Stream,
}

impl Outcome {
    /// A successful allocation without a stream.
    pub(super) fn of_block(class: Class, place: Place, address: u64, size: u64) -> Self {
        Self { result: SUCCESS, class, address, size, stream: Stream::NONE, place, took: 0 }
    }
}

impl FreeRequest {
    pub(super) fn at_once(class: Class, address: u64) -> Self {
        Self { class, address, stream: Stream::NONE }
    }
}

/// The first fields of `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolLocation {
    allocation: c_int,
    handles: c_int,
    kind: c_int,
    id: c_int,
}

impl PoolLocation {
    /// `CU_MEM_ALLOCATION_TYPE_MANAGED`.
    const MANAGED: c_int = 2;
    /// `CU_MEM_LOCATION_TYPE_…`.
    const DEVICE: c_int = 1;
    const HOST: c_int = 2;
    const HOST_NUMA_CURRENT: c_int = 4;

    #[cfg(test)]
    pub(super) fn on_device(id: c_int) -> Self {
        Self { allocation: 1, handles: 0, kind: Self::DEVICE, id }
    }

    /// Properties of a pool at a location (the first fields of `CUmemLocation`).
    pub(super) fn of_location([kind, id]: [c_int; 2], allocation: c_int) -> Self {
        Self { allocation, handles: 0, kind, id }
    }

    /// The device in whose ledger the memory is. `None` for kinds of location that are newer than CUDA 13.0.
    pub(super) fn device(self) -> Option<Device> {
        match (self.allocation, self.kind) {
            (Self::MANAGED, _) => Some(Device::Managed),
            (_, Self::DEVICE) => self.id.try_into().ok().map(Device::Cuda),
            (_, Self::HOST..=Self::HOST_NUMA_CURRENT) => Some(Device::Pinned),
            _ => None,
        }
    }
}
