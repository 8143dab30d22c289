//! Coverage of CUDA memory: what was not seen, and the driver's statistics compared with the recording.

use super::sampled;
use crate::analysis::{self, PoolBalance, Row, pool_balance};
use crate::attribute::Attribution;
use crate::recording::{DeviceView, Recording};
use crate::snapshot::{CudaHooks, CudaState, Device, DeviceSnapshot};
use crate::units::{Bytes, grouped};

/// The device's name, which says if it is simulated.
pub(super) fn device_name(data: &Attribution<'_>, device: Device) -> String {
    let is_simulated = matches!(device, Device::Cuda(_)) && data.health.cuda.state == CudaState::Simulated;
    if is_simulated { format!("{device}, a simulated GPU") } else { device.to_string() }
}

/// The driver's pool statistics, compared with the recording.
pub(super) fn pool_lines(device: &DeviceSnapshot) -> Vec<(&'static str, String)> {
    let (Some(pool), Some(balance)) = (device.pool, pool_balance(device)) else { return Vec::new() };
    let reserved = format!("{} reserved, highest {}", Bytes(pool.reserved), Bytes(pool.reserved_high));
    vec![
        ("Driver's pool", format!("{} in use, {reserved}", Bytes(pool.used))),
        ("", format!("{} of it recorded, {}", Bytes(balance.recorded), rest(&balance))),
    ]
}

fn rest(balance: &PoolBalance) -> String {
    let PoolBalance { rest, before, rounding, .. } = *balance;
    let before = match before {
        Some(0) => String::new(),
        Some(bytes) => format!("; another {} are from before the recording", Bytes(bytes)),
        None => "; how much was in use before the recording is not known".to_owned(),
    };
    let rounding = if rounding > 0 && rest > 0 {
        format!("; rounding explains up to {} bytes", grouped(rounding))
    } else {
        String::new()
    };
    match u64::try_from(rest) {
        Ok(more) => format!("{} bytes not recorded{before}{rounding}", grouped(more)),
        Err(_) => format!("which is {} bytes more than are in use{before}", grouped(rest.unsigned_abs())),
    }
}

pub(super) fn notes(data: &Recording<'_>) -> Vec<String> {
    let mut notes = hook_notes(&data.health.cuda);
    notes.extend(uses_note(data));
    notes.extend(data.devices.iter().filter_map(balance_note));
    notes.extend(data.devices().iter().flat_map(allocator_notes).map(|(_, note)| note));
    notes
}

/// How much is known about the uses of blocks.
fn uses_note(data: &Attribution<'_>) -> Option<String> {
    const NAMED: usize = 3;
    let work = data.gpu_work.as_ref()?;
    let coverage = analysis::use_coverage(data);
    let share = |part: u64, whole: u64| if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 };
    let mut opaque = work.opaque.clone();
    opaque.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let named = opaque.iter().take(NAMED).map(|(id, count)| format!("{} ({})", work.kernel(*id), grouped(*count)));
    let opaque = match opaque.len() {
        0 => String::new(),
        _ => format!("; unknown: {}", named.collect::<Vec<_>>().join(", ")),
    };
    Some(format!(
        "uses: the arguments of {:.1} % of {} kernels are known{opaque}; \
         the last use of {:.1} % of the bytes allocated on GPUs is known",
        share(work.totals.laid_out, work.totals.launches),
        grouped(work.totals.launches),
        share(coverage.known, coverage.bytes)
    ))
}

fn hook_notes(hooks: &CudaHooks) -> Vec<String> {
    let mut notes = Vec::new();
    match hooks.state {
        CudaState::AnotherCopy => notes.push(
            "CUDA memory was not recorded: another copy of memtrace in this process has the hooks; \
             use one copy only"
                .to_owned(),
        ),
        CudaState::TurnedOff => {
            notes.push("CUDA memory was not recorded: the program was started with MEMTRACE=0".to_owned());
        }
        CudaState::Active | CudaState::NotLoaded | CudaState::NotSupported | CudaState::Simulated => {}
    }
    if hooks.refused_imports > 0 {
        let imports = grouped(hooks.refused_imports);
        notes.push(format!(
            "{imports} imports or kept addresses of the CUDA driver could not be patched; calls through them are not seen"
        ));
    }
    let unseen = hooks.unseen_calls.iter().map(|unseen| {
        let (calls, function) = (grouped(unseen.calls), &unseen.function);
        format!("{calls} calls of {function} allocated memory that memtrace does not record")
    });
    notes.extend(unseen);
    notes
}

fn balance_note(device: &DeviceSnapshot) -> Option<String> {
    let balance = pool_balance(device).filter(|balance| !balance.is_explained())?;
    let Device::Cuda(_) = device.device else { return None };
    let (used, recorded) = (grouped(balance.used), grouped(balance.recorded));
    Some(format!(
        "the driver reports {used} bytes in use from the pool of {}, the recording {recorded}: something was not seen",
        device.device
    ))
}

/// What the allocators of frameworks hold of a device's peak, as rows, each with a note.
pub(crate) fn allocator_notes(device: &DeviceView<'_>) -> Vec<(Row, String)> {
    let (peak, about) = (device.peak.total(), sampled::about(device.sample_interval()));
    let note = |row: Row| {
        let count = row.count.unwrap_or(0);
        let (blocks, them) = if count == 1 { ("block holds", "it") } else { ("blocks hold", "them") };
        let (count, bytes, device) = (grouped(count), Bytes(row.bytes), device.device);
        let part = if row.bytes == peak { "all".to_owned() } else { format!("{about}{bytes}") };
        let note = format!(
            "{device}: {about}{count} {blocks} {part} of the {} at the peak; {}'s allocator took {them} and hands out \
             parts of {them} to tensors, which are not seen",
            Bytes(peak),
            row.label
        );
        (row, note)
    };
    analysis::by_allocator(device).into_iter().map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Key;
    use crate::export::{Export, Json};
    use crate::snapshot::testing::{Story, frame, registry, stacks, two_lines_and_a_temporary};
    use crate::snapshot::{Pool, SnapshotData, StackId, UnseenCalls};

    #[test]
    fn the_pool_stands_beside_the_recording() {
        assert_eq!(pool_lines(&two_lines_and_a_temporary().devices[0]), []);
        let recorded = 2500;
        let mut trace = Story::cuda(0);
        trace.alloc("input", 2000).alloc("weights", 500);
        let pool = Pool { reserved: 32 << 20, reserved_high: 64 << 20, used_before: Some(0), ..Pool::default() };
        let device = trace.pool(Pool { used: recorded, ..pool }).device();
        let lines = format!("{:?}", pool_lines(&device));
        assert!(lines.contains("32.00 MiB reserved, highest 64.00 MiB"), "{lines}");
        assert!(lines.contains("0 bytes not recorded"), "{lines}");
        assert_eq!(balance_note(&device), None);
        let device = trace.pool(Pool { used: recorded + (1 << 20), ..pool }).device();
        assert!(balance_note(&device).unwrap().contains("something was not seen"));
    }

    /// Two pages of a suballocator, one of them short-lived, and a block of the program.
    fn pages(own: u64) -> SnapshotData {
        let page = frame("alloc", &registry("cubecl-cuda-0.10.0/src/compute/storage/gpu.rs"), 174);
        let mut trace = Story::cuda(0);
        trace.stacks(stacks(vec![page, frame("net::main", "/home/u/net/src/main.rs", 9)], [[0], [1]]));
        trace.alloc("page", 4 << 20).on(StackId(1)).alloc("brief", 2 << 20).on(StackId(1));
        if own > 0 {
            trace.alloc("own", own).on(StackId(2)).free("own");
        }
        trace.free("brief");
        trace.alloc("last", 1000).on(StackId(2));
        trace.build()
    }

    #[test]
    fn what_an_allocator_holds_is_noted_and_no_temporary() {
        let all = "cuda:0: 2 blocks hold all of the 6.000 MiB at the peak; cubecl_cuda's allocator took them and hands out parts of them \
                   to tensors, which are not seen";
        assert_eq!(notes(&Recording::new(&pages(0))), [all]);
        let data = pages(1 << 20);
        let part = all.replace("all of the 6.000", "6.000 MiB of the 7.000");
        assert_eq!(notes(&Recording::new(&data)), [part.as_str()]);
        let mut json = Vec::new();
        Json::default().write(&data, &mut json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let row = &json["devices"][0]["peak_by_allocator"][0];
        let wanted = serde_json::json!({ "label": "cubecl_cuda", "bytes": 6 << 20, "count": 2, "note": part });
        assert_eq!(*row, wanted);
        let temporaries = analysis::temporaries(&DeviceView::of(&data, &data.devices[0]));
        assert_eq!(temporaries.iter().map(|row| row.bytes).collect::<Vec<_>>(), [1 << 20]);
        let rows = DeviceView::of(&data, &data.devices[0]).by(Key::Line).rows.clone();
        assert_eq!(rows[0].label, "cubecl_cuda's allocator [no user frame]");
        let rows = DeviceView::of(&data, &data.devices[0]).by(Key::Operator).rows.clone();
        assert_eq!(rows[0].label, "(cubecl_cuda's allocator)");
    }

    #[test]
    fn what_was_not_seen_is_named() {
        let mut data = two_lines_and_a_temporary();
        assert_eq!(notes(&Recording::new(&data)), Vec::<String>::new());
        data.health.cuda.unseen_calls = vec![UnseenCalls { function: "cuMemCreate".into(), calls: 3 }];
        data.health.cuda.refused_imports = 1;
        data.health.cuda.state = CudaState::AnotherCopy;
        let notes = notes(&Recording::new(&data)).join("\n");
        for expected in ["3 calls of cuMemCreate", "1 imports", "use one copy only"] {
            assert!(notes.contains(expected), "{expected}: {notes}");
        }
    }
}
