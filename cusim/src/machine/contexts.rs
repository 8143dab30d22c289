//! Contexts: one primary context for each device, and those that programs create.

use super::SimMachine;
use crate::code::{Answer, INVALID_CONTEXT, INVALID_VALUE, demand_or};

#[derive(Clone, Copy, Debug)]
pub(crate) struct SimContext {
    pub(crate) handle: u64,
    pub(crate) device: usize,
    pub(crate) is_primary: bool,
    /// Its references; 0 if it is not active.
    pub(crate) count: u32,
    pub(crate) flags: u32,
    /// Bytes of stack of each thread.
    pub(crate) stack: u64,
}

/// Multiprocessors of each GPU, and the threads that each of them can run at once.
pub(crate) const MULTIPROCESSORS: i32 = 132;
pub(crate) const THREADS_OF_EACH: i32 = 2048;
const THREADS: u64 = (MULTIPROCESSORS * THREADS_OF_EACH) as u64;

/// The driver's default for `SimContext::stack`.
const STACK: u64 = 1 << 10;

impl SimContext {
    pub(crate) fn primary(handle: u64, device: usize) -> Self {
        Self { handle, device, is_primary: true, count: 0, flags: 0, stack: STACK }
    }
}

impl SimMachine {
    /// An active context.
    pub(crate) fn context(&self, handle: u64) -> Answer<SimContext> {
        let found = self.contexts.iter().find(|context| context.handle == handle && context.count > 0);
        found.copied().ok_or(INVALID_CONTEXT)
    }

    pub(crate) fn context_mut(&mut self, handle: u64) -> Answer<&mut SimContext> {
        let found = self.contexts.iter_mut().find(|context| context.handle == handle && context.count > 0);
        found.ok_or(INVALID_CONTEXT)
    }

    /// The device's primary context, active or not.
    pub(crate) fn primary(&mut self, device: usize) -> Answer<&mut SimContext> {
        let found = self.contexts.iter_mut().find(|context| context.is_primary && context.device == device);
        found.ok_or(INVALID_VALUE)
    }

    pub(crate) fn retain_primary(&mut self, device: usize) -> Answer<u64> {
        if self.primary(device)?.count == 0 {
            self.make_room(device, self.size_of_context(STACK))?;
            self.primary(device)?.stack = STACK;
        }
        let context = self.primary(device)?;
        context.count += 1;
        Ok(context.handle)
    }

    pub(crate) fn release_primary(&mut self, device: usize) -> Answer {
        let context = self.primary(device)?;
        context.count = context.count.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        let (handle, count) = (context.handle, context.count);
        if count == 0 {
            self.end_context(handle);
        }
        Ok(())
    }

    /// Frees everything in the primary context. The context keeps its references.
    pub(crate) fn reset_primary(&mut self, device: usize) -> Answer {
        let handle = self.primary(device)?.handle;
        self.end_context(handle);
        Ok(())
    }

    pub(crate) fn create_context(&mut self, device: usize, flags: u32) -> Answer<u64> {
        self.make_room(device, self.size_of_context(STACK))?;
        let handle = self.new_handle();
        self.contexts.push(SimContext { handle, device, is_primary: false, count: 1, flags, stack: STACK });
        Ok(handle)
    }

    /// Bytes of a context whose threads have stacks of this size.
    pub(super) fn size_of_context(&self, stack: u64) -> u64 {
        self.config.context.saturating_add(if self.config.stacks { THREADS.saturating_mul(stack) } else { 0 })
    }

    /// Sets the stack size of each thread, if there is room.
    pub(crate) fn set_stack(&mut self, context: u64, stack: u64) -> Answer {
        let SimContext { device, stack: before, .. } = self.context(context)?;
        let more = self.size_of_context(stack).saturating_sub(self.size_of_context(before));
        self.make_room(device, more)?;
        self.context_mut(context)?.stack = stack;
        Ok(())
    }

    pub(crate) fn destroy_context(&mut self, handle: u64) -> Answer {
        demand_or(!self.context(handle)?.is_primary, INVALID_CONTEXT)?;
        self.end_context(handle);
        self.contexts.retain(|context| context.handle != handle);
        Ok(())
    }

    fn end_context(&mut self, handle: u64) {
        self.free_all_of(handle);
        self.end_arrays_of(handle);
        self.end_externals_of(handle);
        while let Some((&stream, _)) = self.streams.iter().find(|(_, stream)| stream.context == handle) {
            let _ = self.destroy_stream(stream);
        }
        self.events.retain(|_, event| event.context != handle);
        self.end_modules_of(handle);
        self.functions.retain(|_, function| function.context != handle);
    }
}
