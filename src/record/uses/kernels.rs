//! Interned names of kernels and driver functions, and the argument layouts of functions by their handles.

use std::hash::BuildHasher;

use memtrace_core::snapshot::{KernelId, LocalMemory, StackId};

use crate::record::memory::{HASHER, OwnMap, OwnVec, System, own_map, try_copy, try_push};

/// Longer names, such as those of C++ templates, are truncated.
const LONGEST: usize = 512;
const MAX_KERNELS: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) size: u32,
    /// A pointer to data that the kernel does not write, according to its source.
    pub(crate) is_const: bool,
}

pub(crate) type ArgumentLayout = OwnVec<Parameter>;

/// Limit on the number of parameters. All parameters of a kernel together take 32,764 bytes at most.
const MOST_PARAMETERS: usize = 4096;

/// Adds a parameter. `None` if there are too many, or if there is no memory.
pub(crate) fn add_parameter(layout: &mut ArgumentLayout, parameter: Parameter) -> Option<()> {
    (layout.len() < MOST_PARAMETERS && try_push(layout, parameter)).then_some(())
}

#[derive(Debug)]
pub(crate) struct KernelEntry {
    pub(crate) name: OwnVec<u8>,
    /// `None` if the layout cannot be read.
    pub(crate) layout: Option<ArgumentLayout>,
}

#[derive(Debug)]
struct KnownKernel {
    id: KernelId,
    /// `None` if the layout is not known.
    layout: Option<ArgumentLayout>,
}

#[derive(Debug)]
pub(crate) struct KernelTable {
    names: OwnVec<OwnVec<u8>>,
    /// Keyed by hash.
    ids: OwnMap<u64, u32>,
    /// Opaque operations by kernel.
    opaque: OwnVec<u64>,
    /// By kernel: a thread's local memory (the largest of all functions with this name), and the stack of the first
    /// launch.
    local: OwnVec<(u64, StackId)>,
    functions: OwnMap<usize, KnownKernel>,
}

impl KernelTable {
    pub(super) fn new() -> Self {
        let list = OwnVec::new_in(System);
        let (opaque, local) = (OwnVec::new_in(System), OwnVec::new_in(System));
        Self { names: list, ids: own_map(), opaque, local, functions: own_map() }
    }

    /// The id of a name. If there is no room, the id of the first name.
    pub(crate) fn id(&mut self, name: &[u8]) -> KernelId {
        let name = name.get(..LONGEST).unwrap_or(name);
        let hash = HASHER.hash_one(name);
        if let Some(id) = self.ids.get(&hash) {
            return KernelId(*id);
        }
        let next = self.names.len();
        let has_room = next < MAX_KERNELS
            && self.ids.try_reserve(1).is_ok()
            && self.opaque.try_reserve(1).is_ok()
            && self.local.try_reserve(1).is_ok()
            && self.names.try_reserve(1).is_ok();
        let Some(copy) = try_copy(name).filter(|_| has_room) else { return KernelId::default() };
        try_push(&mut self.names, copy);
        try_push(&mut self.opaque, 0);
        try_push(&mut self.local, (0, StackId::NONE));
        self.ids.insert(hash, next as u32);
        KernelId(next as u32)
    }

    pub(super) fn count_opaque(&mut self, id: KernelId) {
        if let Some(count) = self.opaque.get_mut(id.0 as usize) {
            *count += 1;
        }
    }

    /// The kernel with this handle, if it was learnt.
    #[inline]
    pub(crate) fn function(&self, handle: usize) -> Option<(KernelId, Option<&[Parameter]>)> {
        let known = self.functions.get(&handle)?;
        Some((known.id, known.layout.as_ref().map(OwnVec::as_slice)))
    }

    pub(crate) fn learn(&mut self, handle: usize, name: &[u8], layout: Option<ArgumentLayout>, local: (u64, StackId)) {
        let id = self.id(name);
        // Without room for the name, the id is another kernel's.
        let is_own = self.ids.get(&HASHER.hash_one(name.get(..LONGEST).unwrap_or(name))).is_some();
        if let Some(most) = self.local.get_mut(id.0 as usize).filter(|_| is_own) {
            *most = if local.0 > most.0 { local } else { *most };
        }
        if self.functions.try_reserve(1).is_ok() {
            self.functions.insert(handle, KnownKernel { id, layout });
        }
    }

    /// Forgets all functions: their handles may be reused after their module was unloaded.
    pub(crate) fn forget_functions(&mut self) {
        self.functions.clear();
    }

    pub(super) fn names_from(&self, from: usize) -> Vec<String> {
        let names = self.names.get(from..).unwrap_or_default();
        names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    pub(super) fn opaque(&self) -> Vec<(KernelId, u64)> {
        let counted = self.opaque.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(id, count)| (KernelId(id as u32), *count)).collect()
    }

    pub(super) fn local(&self) -> Vec<LocalMemory> {
        let known = self.local.iter().enumerate().filter(|(_, (bytes, _))| *bytes > 0);
        known
            .map(|(id, (bytes, stack))| LocalMemory { kernel: KernelId(id as u32), bytes: *bytes, stack: *stack })
            .collect()
    }
}
