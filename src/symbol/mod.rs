//! Symbolization of this process's code addresses, after recording, with a cache for the whole process.

use std::num::NonZeroU32;

mod loaded;

use std::collections::HashMap;
use std::sync::Mutex;

use memtrace_core::snapshot::{Frame, LoadedObject};
use memtrace_core::symbol::{Resolved, Resolver, Symbols, without_machinery};

pub(crate) use loaded::loaded_objects;

/// Resolved addresses, so that a second snapshot resolves only new ones. Entries stay valid when a loaded object is
/// replaced at the same addresses, because the new object's addresses then have a number in their upper bits.
static CACHE: Mutex<Option<HashMap<u64, Resolved>>> = Mutex::new(None);

/// Resolves addresses, each of which appears once. The first `loaded` objects are still loaded. The others were
/// unloaded, so their files may have changed since.
pub(crate) fn symbolize(addresses: &[u64], objects: Vec<LoadedObject>, loaded: usize) -> Symbols {
    let mut symbols = Symbols::default();
    // If another thread holds the lock, the cache is not used: in a forked child, waiting for it might never end.
    let mut shared = CACHE.try_lock().ok();
    let mut own = None;
    let cache = shared.as_deref_mut().unwrap_or(&mut own).get_or_insert_with(HashMap::new);
    let mut resolver = Resolver::new(&objects, loaded, elsewhere);
    for &address in addresses {
        let resolved = cache.entry(address).or_insert_with(|| resolver.resolve(address));
        symbols.push(address, resolved, &objects, resolver.spans());
    }
    let unreadable = resolver.unreadable();
    symbols.finish(objects, unreadable)
}

/// Resolves an address outside every loaded object with `backtrace`, for systems on which memtrace has no list of
/// the objects.
fn elsewhere(address: u64) -> Option<Resolved> {
    let mut frames = Vec::new();
    backtrace::resolve(address as *mut _, |symbol| {
        frames.push(Frame {
            function: symbol.name().map(|n| format!("{n:#}")),
            file: symbol.filename().map(|f| f.display().to_string()),
            line: symbol.lineno().and_then(NonZeroU32::new),
            inlined: false,
        });
    });
    let is_known = !frames.is_empty();
    is_known.then(|| Resolved { frames: without_machinery(frames), native: false, unknown: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_resolved_once_for_the_whole_process() {
        let here = an_address_is_resolved_once_for_the_whole_process as fn() as usize as u64 + 1;
        let function = || {
            let symbols = symbolize(&[here], loaded_objects(), usize::MAX);
            symbols.frames.first().and_then(|frame| frame.function.clone()).unwrap_or_default()
        };
        assert!(function().contains("an_address_is_resolved_once"), "{}", function());
        // A second snapshot shows what the cache says.
        let mut cache = CACHE.lock().unwrap();
        cache.as_mut().unwrap().get_mut(&here).unwrap().frames[0].function = Some("from the cache".to_owned());
        drop(cache);
        assert_eq!(function(), "from the cache");
    }
}
