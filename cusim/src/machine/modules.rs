//! Modules and kernel functions: only names, because no kernel runs.

use super::SimMachine;
use crate::code::{Answer, INVALID_HANDLE, NOT_FOUND};
use crate::own::{MmapVec, mmap_vec};

#[derive(Debug)]
pub(crate) struct SimModule {
    /// 0 for a library, which belongs to no context.
    context: u64,
    /// The device whose memory it takes.
    pub(crate) device: Option<usize>,
    /// The context that was current when it was loaded.
    loaded_in: u64,
    /// Hashes of the kernel names in its PTX. Without any, every name is accepted.
    kernels: MmapVec<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelFunction {
    pub(crate) module: u64,
    pub(crate) context: u64,
    name: u64,
}

impl SimMachine {
    /// Loads PTX text. For other code `ptx` is empty, and every kernel name is accepted.
    pub(crate) fn load_module(&mut self, context: u64, ptx: &[u8]) -> Answer<u64> {
        self.load(context, context, ptx)
    }

    /// Loads a library, which outlives contexts. It takes memory of the current context's device, if there is one
    /// (assumed; a GPU loads it into each context that uses it).
    pub(crate) fn load_library(&mut self, loaded_in: u64, ptx: &[u8]) -> Answer<u64> {
        self.load(0, loaded_in, ptx)
    }

    fn load(&mut self, context: u64, loaded_in: u64, ptx: &[u8]) -> Answer<u64> {
        let device = self.context(loaded_in).ok().map(|context| context.device);
        if let Some(device) = device {
            self.make_room(device, self.config.module)?;
        }
        let handle = self.new_handle();
        self.modules.insert(handle, SimModule { context, device, loaded_in, kernels: kernels(ptx) });
        Ok(handle)
    }

    /// Unloads the modules of a context. Libraries stay, but take no memory any more.
    pub(super) fn end_modules_of(&mut self, context: u64) {
        self.modules.retain(|_, module| module.context != context);
        for library in self.modules.values_mut().filter(|module| module.loaded_in == context) {
            library.device = None;
        }
    }

    pub(crate) fn unload_module(&mut self, handle: u64) -> Answer {
        self.modules.remove(&handle).ok_or(INVALID_HANDLE)?;
        self.functions.retain(|_, function| function.module != handle);
        Ok(())
    }

    /// The handle of a kernel, the same for each look-up of a name.
    pub(crate) fn function(&mut self, module: u64, name: &[u8]) -> Answer<u64> {
        let SimModule { context, ref kernels, .. } = *self.modules.get(&module).ok_or(INVALID_HANDLE)?;
        let name = hash(name);
        if !kernels.is_empty() && !kernels.contains(&name) {
            return Err(NOT_FOUND);
        }
        let known = self.functions.iter().find(|(_, function)| function.module == module && function.name == name);
        if let Some((handle, _)) = known {
            return Ok(*handle);
        }
        let handle = self.new_handle();
        self.functions.insert(handle, KernelFunction { module, context, name });
        Ok(handle)
    }
}

/// The names after each `.entry` in PTX text.
fn kernels(ptx: &[u8]) -> MmapVec<u64> {
    let mut names = mmap_vec();
    let mut rest = ptx;
    while let Some(at) = rest.windows(ENTRY.len()).position(|window| window == ENTRY) {
        rest = rest.get(at + ENTRY.len()..).unwrap_or_default().trim_ascii_start();
        let end = rest.iter().position(|byte| !is_in_name(*byte)).unwrap_or(rest.len());
        names.push(hash(rest.get(..end).unwrap_or_default()));
    }
    names
}

const ENTRY: &[u8] = b".entry";

fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_in_ptx() {
        let names = kernels(b".visible .entry add_f32(\n.param)\n{}\n.entry\n  mul$1 (");
        assert_eq!(names.as_slice(), [hash(b"add_f32"), hash(b"mul$1")]);
        assert!(kernels(b".version 9.0\n.target sm_80\n").is_empty());
    }
}
