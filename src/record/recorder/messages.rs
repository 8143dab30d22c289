//! Encodes heap events as messages of the queue.

use memtrace_core::snapshot::{ContextId, MemoryKind, StackId, ThreadId};

use super::heap::NewBlock;
use super::queue::Message;
use crate::record::event_site::EventSite;
use crate::record::ledger::moment::Earlier;

#[derive(Clone, Copy, Debug)]
pub(super) enum HeapEvent {
    Alloc(NewBlock),
    Free { address: u64, size: u64, site: EventSite, may_be_undone: bool },
}

impl HeapEvent {
    /// The change in live bytes that this event makes.
    #[inline(always)]
    pub(super) fn weight(&self) -> i64 {
        match self {
            Self::Alloc(block) => block.asked as i64,
            Self::Free { size, .. } => (*size as i64).wrapping_neg(),
        }
    }
}

const ALLOC: u64 = 0;
const FREE: u64 = 1;
const FREE_TO_UNDO: u64 = 2;

/// Index of the word with the complement of the address. The address itself must not be in the queue, because
/// static memory is searched for addresses of blocks.
pub(super) const NOT_ADDRESS: usize = 0;

#[inline(always)]
pub(super) fn packed(event: &HeapEvent, moment: &Earlier) -> Message {
    let (address, size, asked, site, kind) = match *event {
        HeapEvent::Alloc(NewBlock { address, size, asked, site }) => (address, size, asked, site, ALLOC),
        HeapEvent::Free { address, size, site, may_be_undone: false } => (address, size, 0, site, FREE),
        HeapEvent::Free { address, size, site, may_be_undone: true } => (address, size, 0, site, FREE_TO_UNDO),
    };
    let Earlier { ticks, below_threshold } = *moment;
    let EventSite { stack, context, thread, .. } = site;
    let (stack, thread) = (u64::from(stack.0), u64::from(thread.0));
    let below = below_threshold.map_or(0, |bytes| bytes.wrapping_add(1));
    [!address, size, asked, ticks, stack << 32 | u64::from(context.0), thread << 32 | kind, below]
}

#[inline(always)]
pub(super) fn unpacked(message: &Message) -> (HeapEvent, Earlier) {
    let [not_address, size, asked, ticks, stack_and_context, thread_and_kind, below] = *message;
    let address = !not_address;
    let site = EventSite {
        stack: StackId((stack_and_context >> 32) as u32),
        context: ContextId(stack_and_context as u32),
        thread: ThreadId((thread_and_kind >> 32) as u32),
        stream: 0,
        memory: MemoryKind::Heap,
    };
    let event = match thread_and_kind & u64::from(u32::MAX) {
        ALLOC => HeapEvent::Alloc(NewBlock { address, size, asked, site }),
        kind => HeapEvent::Free { address, size, site, may_be_undone: kind == FREE_TO_UNDO },
    };
    (event, Earlier { ticks, below_threshold: below.checked_sub(1) })
}
