//! Modules and kernel functions. They have only names and the sizes of parameters, because no kernel runs.

use super::SimMachine;
use crate::code::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, demand_or};
use crate::own::{MmapVec, mmap_vec};

#[derive(Debug)]
pub(crate) struct SimModule {
    /// 0 for a library, which belongs to no context.
    context: u64,
    /// The device whose memory the module takes.
    pub(crate) device: Option<usize>,
    /// The context that was current when the module was loaded.
    loaded_in: u64,
    /// The kernels in its PTX.
    kernels: MmapVec<SimKernel>,
    /// Sizes of the parameters of all kernels.
    sizes: MmapVec<usize>,
    /// Names that are not in `kernels` are accepted, too, because the module has no PTX, or PTX of the stand-in
    /// compiler, which may miss kernels.
    is_open: bool,
}

#[derive(Clone, Copy, Debug)]
struct SimKernel {
    /// A hash of its name.
    name: u64,
    /// Its parameters, as a range of the module's sizes; `None` if they are not known.
    parameters: Option<(usize, usize)>,
    /// Bytes of local memory that each thread needs.
    local: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelFunction {
    pub(crate) module: u64,
    pub(crate) context: u64,
    name: u64,
}

impl SimMachine {
    /// Loads PTX text. For other code `ptx` is empty, and every kernel name is accepted. A library belongs to no
    /// context (0) and outlives contexts. It takes memory of the device whose context is current when it is loaded, if
    /// there is one (assumed; a GPU loads it into each context that uses it).
    pub(crate) fn load_module(&mut self, context: u64, loaded_in: u64, ptx: &[u8]) -> Answer<u64> {
        let device = self.context(loaded_in).ok().map(|context| context.device);
        if let Some(device) = device {
            self.make_room(device, self.config.module)?;
        }
        let handle = self.new_handle();
        let (kernels, sizes) = kernels(ptx);
        let is_open = kernels.is_empty() || ptx.starts_with(b"// memtrace's stand-in");
        self.modules.insert(handle, SimModule { context, device, loaded_in, kernels, sizes, is_open });
        Ok(handle)
    }

    /// Unloads the modules of a context. Libraries stay, but no longer take memory.
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
        let SimModule { context, is_open, ref kernels, .. } = *self.modules.get(&module).ok_or(INVALID_HANDLE)?;
        let (text, name) = (name, hash(name));
        demand_or(is_open || kernels.iter().any(|kernel| kernel.name == name), NOT_FOUND)?;
        let known = self.functions.iter().find(|(_, function)| function.module == module && function.name == name);
        if let Some((handle, _)) = known {
            return Ok(*handle);
        }
        let handle = self.new_handle();
        self.functions.insert(handle, KernelFunction { module, context, name });
        let mut copy = mmap_vec();
        copy.extend_from_slice(text);
        copy.push(0);
        self.kernel_names.insert(handle, copy);
        Ok(handle)
    }

    /// The address of a kernel's name, which ends with a zero byte.
    pub(crate) fn kernel_name(&self, function: u64) -> Answer<u64> {
        Ok(self.kernel_names.get(&function).ok_or(INVALID_HANDLE)?.as_ptr() as u64)
    }

    /// Bytes of local memory that each thread of a kernel needs; 0 for a module without PTX.
    pub(crate) fn local_size(&self, function: u64) -> Answer<u64> {
        let KernelFunction { module, name, .. } = *self.functions.get(&function).ok_or(INVALID_HANDLE)?;
        let module = self.modules.get(&module).ok_or(INVALID_HANDLE)?;
        Ok(module.kernels.iter().find(|kernel| kernel.name == name).map_or(0, |kernel| kernel.local))
    }

    /// Offset and size of a kernel's parameter, in bytes. A module without PTX has no known parameters (a GPU knows
    /// them).
    pub(crate) fn parameter(&self, function: u64, index: usize) -> Answer<(usize, usize)> {
        let KernelFunction { module, name, .. } = *self.functions.get(&function).ok_or(INVALID_HANDLE)?;
        let module = self.modules.get(&module).ok_or(INVALID_HANDLE)?;
        let kernel = module.kernels.iter().find(|kernel| kernel.name == name).ok_or(NOT_FOUND)?;
        let (first, count) = kernel.parameters.ok_or(NOT_FOUND)?;
        let sizes = module.sizes.get(first..first + count).unwrap_or_default();
        let size = *sizes.get(index).ok_or(INVALID_VALUE)?;
        // Parameters of at least 8 bytes are aligned to 8 bytes.
        let end = |at: usize, size: &usize| at.next_multiple_of((*size).clamp(1, 8).next_power_of_two()) + size;
        let end = sizes.iter().take(index + 1).fold(0, end);
        Ok((end - size, size))
    }
}

/// The kernels after each `.entry` in PTX text, and the sizes of their parameters.
fn kernels(ptx: &[u8]) -> (MmapVec<SimKernel>, MmapVec<usize>) {
    let (mut kernels, mut sizes) = (mmap_vec(), mmap_vec());
    let mut rest = ptx;
    while let Some(at) = rest.windows(ENTRY.len()).position(|window| window == ENTRY) {
        rest = rest.get(at + ENTRY.len()..).unwrap_or_default().trim_ascii_start();
        let end = rest.iter().position(|byte| !is_in_name(*byte)).unwrap_or(rest.len());
        let name = hash(rest.get(..end).unwrap_or_default());
        let list = rest.get(end..).unwrap_or_default().trim_ascii_start();
        let list = list.strip_prefix(b"(").and_then(|list| list.split(|byte| *byte == b')').next());
        let first = sizes.len();
        let known = list.is_none_or(|list| {
            let mut parts = list.split(|byte| *byte == b',').filter(|part| !part.trim_ascii().is_empty());
            parts.all(|part| parameter_size(part).map(|size| sizes.push(size)).is_some())
        });
        let body = rest.windows(ENTRY.len()).position(|window| window == ENTRY).map_or(rest, |next| &rest[..next]);
        kernels.push(SimKernel { name, parameters: known.then(|| (first, sizes.len() - first)), local: local(body) });
    }
    (kernels, sizes)
}

/// The sum of variables such as `.local .align 16 .b8 __local_depot0[1168];`.
fn local(body: &[u8]) -> u64 {
    const LOCAL: &[u8] = b".local";
    let (mut rest, mut sum) = (body, 0);
    while let Some(at) = rest.windows(LOCAL.len()).position(|window| window == LOCAL) {
        rest = &rest[at + LOCAL.len()..];
        let declaration = rest.split(|byte| *byte == b';').next().filter(|text| text.contains(&b'['));
        sum += declaration.and_then(parameter_size).unwrap_or(0) as u64;
    }
    sum
}

/// The size of a parameter such as `.param .u64 a` or `.param .align 8 .b8 b[24]`.
fn parameter_size(text: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(text).ok()?;
    let bits = |word: &str| word.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<usize>().ok();
    let mut types = text.split_whitespace().filter(|word| {
        let Some(name) = word.strip_prefix('.') else { return false };
        name.trim_start_matches(['u', 's', 'b', 'f']).parse::<u8>().is_ok()
    });
    let element = types.next_back().and_then(bits)? / 8;
    let count = match text.split_once('[') {
        Some((_, rest)) => rest.split(']').next()?.trim().parse().ok()?,
        None => 1,
    };
    Some(element * count)
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
        let ptx = b".visible .entry add_f32(\n.param .u64 .ptr .global .align 4 a,\n.param .u8 b,\n\
            .param .align 8 .b8 c[24])\n{ .local .align 16 .b8 depot[1168]; .local .f64 x[4];\n ld.local.f64 y, [z]; }\n.entry\n  mul$1 (.param .what d)\n.entry none {}";
        let (found, sizes) = kernels(ptx);
        let names: Vec<u64> = found.iter().map(|kernel| kernel.name).collect();
        assert_eq!(names, [&b"add_f32"[..], b"mul$1", b"none"].map(hash));
        assert_eq!((sizes.as_slice(), found[1].parameters, found[2].parameters), (&[8, 1, 24][..], None, Some((3, 0))));
        assert_eq!(found.iter().map(|kernel| kernel.local).collect::<Vec<_>>(), [1168 + 32, 0, 0]);
        assert!(kernels(b".version 9.0\n.target sm_80\n").0.is_empty());
        let mut machine = SimMachine::new(crate::Config::default()).unwrap();
        let library = machine.load_module(0, 0, ptx).unwrap();
        let add = machine.function(library, b"add_f32").unwrap();
        let parameters = [0, 1, 2, 3].map(|index| machine.parameter(add, index));
        assert_eq!(parameters, [Ok((0, 8)), Ok((8, 1)), Ok((16, 24)), Err(INVALID_VALUE)]);
    }
}
