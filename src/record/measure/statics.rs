//! Static and thread-local memory of the loaded object that contains this code: the program, or its library.
//!
//! The memory is read through the kernel. If another thread unmaps it meanwhile, the read fails and does not fault.
//! Thread-local memory of ended threads is left out, because it may have been reused.

use std::collections::HashSet;
use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::elf;
use crate::record::{guard, thread};

/// Number of bytes read at once; whole pages.
const CHUNK: u64 = 64 << 10;

/// The start addresses of the blocks that a word in static or thread-local memory points into.
pub(crate) fn held_by_statics(mut blocks: Vec<Range<u64>>) -> HashSet<u64> {
    let mut held = HashSet::new();
    blocks.sort_unstable_by_key(|block| block.start);
    let Some(memory) = File::open("/proc/self/mem").ok().filter(|_| !blocks.is_empty()) else { return held };
    let mut chunk = vec![0u8; CHUNK as usize];
    for area in areas() {
        for start in area.clone().step_by(CHUNK as usize) {
            let length = (area.end - start).min(CHUNK) as usize;
            let part = chunk.get_mut(..length).unwrap_or_default();
            if memory.read_exact_at(part, start).is_err() {
                continue;
            }
            for word in part.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)) {
                let before = blocks.partition_point(|block| block.start <= word);
                let block = before.checked_sub(1).and_then(|at| blocks.get(at));
                held.extend(block.filter(|block| block.contains(&word)).map(|block| block.start));
            }
        }
    }
    held
}

/// The object's writable segments, and its thread-local variables in each living thread.
fn areas() -> Vec<Range<u64>> {
    let (here, local) = (areas as fn() -> _ as usize as u64, guard::local_address());
    let mut areas = Vec::new();
    let mut locals = None;
    elf::each_object(|info| {
        if !elf::range(info).contains(&here) {
            return ControlFlow::Continue(());
        }
        let writable = |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0;
        let area = |header: &libc::Elf64_Phdr| {
            let start = info.dlpi_addr.wrapping_add(header.p_vaddr).next_multiple_of(8);
            start..start.saturating_add(header.p_memsz)
        };
        areas.extend(elf::headers(info).iter().filter(writable).map(area));
        let own = elf::headers(info).iter().find(|header| header.p_type == libc::PT_TLS);
        // In every thread, a variable is at the same offset from the start of the object's thread-local memory.
        locals = own.map(|header| (local.wrapping_sub(info.dlpi_tls_data.addr() as u64), header.p_memsz));
        ControlFlow::Break(())
    });
    if let Some((distance, length)) = locals.filter(|(distance, length)| distance < length) {
        let lives = |os_id: u32| Path::new(&format!("/proc/self/task/{os_id}")).exists();
        let living = thread::locals().filter(|(os_id, _)| lives(*os_id)).map(|(_, local)| local - distance);
        areas.extend(living.map(|start| start.next_multiple_of(8)..start + length));
    }
    areas
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::hint::black_box;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    const BLOCK: u64 = 0x7f12_3456_7000;

    fn is_held(start: u64) -> bool {
        let blocks = vec![start + 64..start + 128, start..start + 64];
        held_by_statics(blocks).contains(&start)
    }

    #[test]
    fn a_static_holds_what_it_points_to_and_the_heap_holds_nothing() {
        static POINTER: AtomicU64 = AtomicU64::new(1);
        let on_the_heap = black_box(Box::new(BLOCK + 0x100_0000));
        assert!(!is_held(BLOCK) && !is_held(*on_the_heap));
        for (inside, held) in [(0, true), (63, true), (64, false)] {
            // A static that nothing reads may not be written at all.
            black_box(&POINTER).store(BLOCK + inside, Ordering::Relaxed);
            assert_eq!(is_held(BLOCK), held, "{inside}");
        }
        POINTER.store(1, Ordering::Relaxed);
    }

    #[test]
    fn a_thread_local_holds_something_for_as_long_as_its_thread_lives() {
        thread_local!(static POINTER: Cell<u64> = const { Cell::new(0) });
        const OF_THREAD: u64 = BLOCK + 0x200_0000;
        let ((ready, is_ready), (stop, stopped)) = (mpsc::channel(), mpsc::channel::<()>());
        let thread = std::thread::spawn(move || {
            // The recorder knows a thread from its first block on.
            thread::number();
            POINTER.with(|pointer| black_box(pointer).set(OF_THREAD));
            ready.send(()).unwrap();
            stopped.recv().unwrap_err();
        });
        is_ready.recv().unwrap();
        assert!(is_held(OF_THREAD));
        drop(stop);
        thread.join().unwrap();
        // The kernel wakes a thread that joins another one before it has removed that one.
        let is_gone = || !is_held(OF_THREAD) || (std::thread::sleep(Duration::from_millis(1)), false).1;
        assert!((0..5_000).any(|_| is_gone()));
    }
}
