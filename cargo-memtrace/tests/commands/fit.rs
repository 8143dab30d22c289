//! What fits: `fit`, `replay` and `plan` judge a recording of a GPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use memtrace_core::snapshot::{DeviceMemory, HostMemory, SystemMemory, UnifiedMemory};

use crate::{fails, memtrace, prints, recording};

/// The recording as one of a GPU, on which it held 2,000 bytes or so.
fn on_a_gpu(folder: &Path, refusals: u64) -> PathBuf {
    let mut data = memtrace_core::open(recording()).unwrap();
    data.devices.truncate(1);
    (data.devices[0].device, data.health) = (memtrace_core::Device::Cuda(0), Default::default());
    let device = &mut data.devices[0];
    device.stats.num_ooms = refusals;
    device.records.iter_mut().for_each(|record| record.memory = memtrace_core::snapshot::MemoryKind::Pool);
    let blocks = device.live.iter_mut().chain(&mut device.peak.blocks);
    blocks.for_each(|block| block.memory = memtrace_core::snapshot::MemoryKind::Pool);
    let (path, mut capture) = (folder.join(format!("gpu-{refusals}.memtrace")), Vec::new());
    memtrace_core::export::Export::write(&memtrace_core::export::Capture::default(), &data, &mut capture).unwrap();
    fs::write(&path, capture).unwrap();
    path
}

#[test]
fn what_fits_ends_with_0_what_does_not_with_1_and_what_nobody_knows_with_3() {
    let folder = tempfile::tempdir().unwrap();
    let file = on_a_gpu(folder.path(), 0);
    let on = |gpus| ["fit", "--gpus", gpus, "--recording", file.to_str().unwrap()];
    let fits = prints(&on("T4,rtx-4090"));
    assert!(
        fits.starts_with("T4 (14.56 GiB for CUDA): fits, ") && fits.contains("\nRTX 4090 (23.52 GiB for"),
        "{fits}"
    );
    assert!(fits.contains("src/model.rs") && fits.contains("= needed of 23.52 GiB"), "{fits}");
    assert!(fails(1, &on("T4,16MiB")).contains("does not fit on 16MiB"));
    let output = memtrace(&on("200MiB"));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(fails(2, &on("RTX-1")).contains("no card \"RTX-1\" is known"));
    let all = prints(&["fit", "--recording", file.to_str().unwrap()]);
    assert_eq!(all.lines().filter(|line| line.contains(" for CUDA): fits, ")).count(), 15, "{all}");
    let json = prints(&[&on("T4")[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let card = &json["cards"][0];
    let sum = |end: &str| card["rows"].as_array().unwrap().iter().map(|row| row[end].as_u64().unwrap()).sum::<u64>();
    let spare = card["memory_bytes"].as_u64().unwrap() - sum("high_bytes");
    assert_eq!((&card["verdict"], card["spare_bytes"][0].as_u64()), (&"fits".into(), Some(spare)));
    // The peak of a program that was refused memory is lower than its need.
    let refused = on_a_gpu(folder.path(), 1);
    let output = memtrace(&["fit", "--gpus", "T4", "--recording", refused.to_str().unwrap()]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0), "{output:?}");
    // A recording of the heap alone says nothing of a GPU.
    assert!(fails(2, &["fit", "--recording", recording().to_str().unwrap()]).contains("used no GPU memory"));
}

#[test]
fn each_gpu_of_a_program_has_to_fit_with_what_is_to_stay_free_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = on_a_gpu(folder.path(), 0);
    let mut data = memtrace_core::open(&path).unwrap();
    let mut second = data.devices[0].clone();
    second.device = memtrace_core::Device::Cuda(1);
    second.stats.reserved_bytes.peak = 12 << 30;
    // What its pool would give back is not known.
    second.overwritten = 1;
    data.devices.push(second);
    let mut capture = Vec::new();
    memtrace_core::export::Export::write(&memtrace_core::export::Capture::default(), &data, &mut capture).unwrap();
    fs::write(&path, capture).unwrap();
    let on = |card: &'static str| ["fit", "--gpus", card, "--recording", path.to_str().unwrap()];
    let both = prints(&on("T4"));
    assert!(both.starts_with("cuda:0 on T4 (") && both.contains("\ncuda:1 on T4 ("), "{both}");
    assert!(both.contains("\ncuda:1 on T4 (Zheng-Chong"), "{both}");
    // The pool of the second one took 12 GiB, so 3 may not be free there.
    let output = memtrace(&[&on("T4")[..], &["--margin", "3GiB"]].concat());
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), said.matches(": fits, ").count()), (Some(3), 1), "{said}");
    assert!(said.contains("3.000 GiB  3.000 GiB  margin: as given"), "{said}");
}

#[test]
fn a_prediction_is_compared_with_a_recording_row_by_row() {
    let folder = tempfile::tempdir().unwrap();
    let predicted = on_a_gpu(folder.path(), 0);
    let measured = |used: u64| {
        let mut data = memtrace_core::open(&predicted).unwrap();
        let memory =
            memtrace_core::snapshot::DeviceMemory { total: 16 << 30, free: (16 << 30) - used, ..Default::default() };
        data.devices[0].memory = Some(memory);
        let (path, mut capture) = (folder.path().join("measured.memtrace"), Vec::new());
        memtrace_core::export::Export::write(&memtrace_core::export::Capture::default(), &data, &mut capture).unwrap();
        fs::write(&path, capture).unwrap();
        path
    };
    let check = |file: &Path| {
        let file = file.to_str().unwrap();
        memtrace(&["fit", "--check", file, "--gpus", "T4", "--recording", predicted.to_str().unwrap()])
    };
    let output = check(&measured(100 << 20));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && said.contains("Predicted for T4 and measured") && !said.contains("UNDER"),
        "{said}"
    );
    let output = check(&measured(1 << 30));
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), said.matches("UNDER").count()), (Some(1), 2), "{said}");
    let of_the_heap = check(&recording());
    assert_eq!(of_the_heap.status.code(), Some(2), "{of_the_heap:?}");
}

#[test]
fn what_is_free_now_is_what_nvidia_smi_says() {
    let folder = tempfile::tempdir().unwrap();
    let file = on_a_gpu(folder.path(), 0);
    let smi = folder.path().join("nvidia-smi");
    fs::write(&smi, "#!/bin/sh\necho NVIDIA GeForce RTX 4090, 23028\necho Tesla V100, 10\n").unwrap();
    let fit = |path: &Path| {
        let arguments = ["memtrace", "fit", "--free", "--recording", file.to_str().unwrap()];
        Command::new(env!("CARGO_BIN_EXE_cargo-memtrace")).args(arguments).env("PATH", path).output().unwrap()
    };
    let output = fit(folder.path());
    assert_eq!(output.status.code(), Some(2), "it may not be executed");
    let mut mode = fs::metadata(&smi).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    fs::set_permissions(&smi, mode).unwrap();
    let output = fit(folder.path());
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("NVIDIA GeForce RTX 4090 (22.49 GiB for CUDA): fits, "), "{said}");
    assert!(said.contains("\nTesla V100 (10.00 MiB for CUDA): does not fit, "), "{said}");
}

/// A recording of an integrated GPU of a host with 120 GiB; the process had at most 1 GiB of it, if that was read.
fn on_an_integrated_gpu(folder: &Path, process: Option<u64>, system: Option<SystemMemory>) -> PathBuf {
    let path = on_a_gpu(folder, 0);
    let mut data = memtrace_core::open(&path).unwrap();
    let unified = Some(UnifiedMemory { system, process: None });
    data.devices[0].memory = Some(DeviceMemory { total: 120 << 30, free: 2 << 30, unified, ..DeviceMemory::default() });
    data.process.memory = process.map(|resident_high| HostMemory { resident_high, ..HostMemory::default() });
    data.process.mappings = None;
    let mut capture = Vec::new();
    memtrace_core::export::Export::write(&memtrace_core::export::Capture::default(), &data, &mut capture).unwrap();
    let path = path.with_file_name("integrated.memtrace");
    fs::write(&path, capture).unwrap();
    path
}

const HOST: SystemMemory = SystemMemory { total: 120 << 30, available: 90 << 30, free: 2 << 30 };

#[test]
fn where_a_gpus_memory_is_the_hosts_the_process_needs_some_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = on_an_integrated_gpu(folder.path(), Some(1 << 30), Some(HOST));
    let fit = |more: &[&str]| memtrace(&[&["fit", "--recording", file.to_str().unwrap()][..], more].concat());
    let said = |more: &[&str], code| {
        let output = fit(more);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let all = said(&[], 0);
    assert!(all.starts_with("the recorded host (120.0 GiB of the host's memory): fits, "), "{all}");
    assert!(all.contains("the recording is of an integrated GPU"), "{all}");
    assert_eq!(all.lines().filter(|line| line.contains(" for CUDA): fits, ")).count(), 15, "{all}");
    let sized = said(&["--gpus", "128GiB,T4"], 0);
    assert!(sized.starts_with("128GiB (128.0 GiB of the host's memory): fits, "), "{sized}");
    assert!(sized.contains("\nT4 (14.56 GiB for CUDA): fits, "), "{sized}");
    assert_eq!(sized.matches("0 B  1.000 GiB  process's own memory: at most the resident peak").count(), 1, "{sized}");
    // What CUDA takes is within half a GiB at least, and the process may need one more.
    let tight = said(&["--gpus", "1GiB"], 3);
    assert!(tight.starts_with("1GiB (1.000 GiB of the host's memory): undecided, between "), "{tight}");
    let json: serde_json::Value = serde_json::from_slice(&fit(&["--gpus", "128GiB", "--json"]).stdout).unwrap();
    let rows = json["cards"][0]["rows"].as_array().unwrap().clone();
    let process: Vec<_> = rows.iter().filter(|row| row["what"] == "process's own memory").collect();
    assert_eq!((process.len(), process[0]["high_bytes"].as_u64()), (1, Some(1 << 30)));
    assert_eq!(json["cards"][0]["unified"], true);
}

#[test]
fn without_readings_of_the_host_nobody_knows_whether_a_program_fits_there() {
    let folder = tempfile::tempdir().unwrap();
    let fit = |file: &Path, more: &[&str]| {
        let output = memtrace(&[&["fit", "--recording", file.to_str().unwrap()][..], more].concat());
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    };
    let file = on_an_integrated_gpu(folder.path(), None, None);
    let (code, said) = fit(&file, &["--gpus", "128GiB"]);
    assert!(
        code == Some(3) && said.contains("undecided: how much memory the process had of the host was not"),
        "{said}"
    );
    let (code, said) = fit(&file, &[]);
    assert!(code == Some(3) && said.contains("does not say how much memory the host has"), "{said}");
    // By the option a recording of another GPU is taken so, too; the cards of the table have memory of their own.
    let other = on_a_gpu(folder.path(), 0);
    let (code, said) = fit(&other, &["--unified", "--gpus", "128GiB"]);
    assert!(said.starts_with("128GiB (128.0 GiB of the host's memory): ") && code != Some(2), "{said}");
    for (arguments, word) in [
        (&["--unified", "--gpus", "T4"][..], "is no size"),
        (&["--unified"], "give the host's memory"),
        (&["--unified", "--gpus", "8GiB", "--count", "2"], "one integrated GPU"),
    ] {
        let (code, said) = fit(&other, arguments);
        assert!(code == Some(2) && said.contains(word), "{said}");
    }
}

#[test]
fn what_is_free_now_of_a_gpu_without_memory_of_its_own_is_what_linux_calls_available() {
    let folder = tempfile::tempdir().unwrap();
    let smi = folder.path().join("nvidia-smi");
    fs::write(&smi, "#!/bin/sh\necho NVIDIA GB10, '[N/A]'\n").unwrap();
    let mut mode = fs::metadata(&smi).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    fs::set_permissions(&smi, mode).unwrap();
    let fit = |file: &Path| {
        let arguments = ["memtrace", "fit", "--free", "--json", "--recording", file.to_str().unwrap()];
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
        let output = command.args(arguments).env("PATH", folder.path()).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let card = &json["cards"][0];
        (card["card"].as_str().unwrap().to_owned(), card["memory_bytes"].as_u64().unwrap(), card["unified"] == true)
    };
    let available = || SystemMemory::of_meminfo(&fs::read_to_string("/proc/meminfo").unwrap()).unwrap().available;
    let (other, integrated) = (on_a_gpu(folder.path(), 0), on_an_integrated_gpu(folder.path(), None, Some(HOST)));
    for (file, name) in [(other, "NVIDIA GB10"), (integrated, "this host")] {
        let (before, (card, memory, unified)) = (available(), fit(&file));
        assert_eq!((card.as_str(), unified), (name, true));
        assert!(memory.abs_diff(before) < before / 2, "{memory} {before}");
    }
}

#[test]
fn a_replay_ends_with_0_where_memory_is_enough_and_says_who_holds_it_where_it_runs_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = on_a_gpu(folder.path(), 0);
    let file = file.to_str().unwrap();
    let all = prints(&["replay", file]);
    assert!(all.starts_with("With driver-pool at most 32.00 MiB would be reserved; the live peak is "), "{all}");
    assert!(all.contains("Reserved on cuda:0 over time, with driver-pool\n"), "{all}");
    for model in ["driver-pool,threshold=max", "pytorch,expandable", "pytorch,max_split=128MiB", "pytorch,roundup=4"] {
        assert!(all.contains(&format!("  {model}\n")), "{model}: {all}");
    }
    let with = |more: &[&'static str]| [&["replay", file][..], more].concat();
    let fits = prints(&with(&["--allocator", "pytorch", "--memory", "8MiB"]));
    assert!(fits.starts_with("Fits in 8.000 MiB: ") && fits.contains(" to spare. With pytorch at most "), "{fits}");
    let output = memtrace(&with(&["--allocator", "pytorch", "--memory", "1MiB"]));
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((output.status.code(), &*error), (Some(1), "error: memory runs out with pytorch\n"));
    assert!(said.starts_with("Runs out of 1.000 MiB with pytorch at "), "{said}");
    assert!(said.contains("Live when memory runs out, by line"), "{said}");
    let all = memtrace(&with(&["--memory", "1MiB"]));
    let all = String::from_utf8_lossy(&all.stdout).into_owned();
    assert!(all.contains("\nIt runs out with every setting that was tried.\n"), "{all}");
    assert!(fails(2, &with(&["--allocator", "malloc"])).contains("there are driver-pool and pytorch"));
}

#[test]
fn a_plan_ends_with_0_within_the_budget_and_with_1_where_bytes_are_missing() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/docs/small.memtrace");
    let file = file.to_str().unwrap();
    let within = prints(&["plan", file, "5KiB"]);
    assert_eq!(within, "Nothing needs to change: the peak on cpu is 4.418 KiB, within 5.000 KiB.\n");
    assert_eq!(fails(1, &["plan", file, "1KiB"]), "error: the peak stays 3.418 KiB above the budget of 1KiB\n");
    let json: serde_json::Value = serde_json::from_str(&prints(&["plan", file, "5KiB", "--json"])).unwrap();
    let figures = ["version", "budget_bytes", "recorded_peak_bytes", "peak_bytes", "short_bytes", "moved_bytes"];
    assert_eq!(figures.map(|key| json[key].as_u64().unwrap()), [1, 5 << 10, 4524, 4524, 0, 0]);
    assert!(fails(2, &["plan", file, "RTX-1"]).contains("give its memory, such as 48GiB, or one of T4"));
    // A program that was refused memory may need more than the recording says.
    let (folder, mut data) = (tempfile::tempdir().unwrap(), memtrace_core::open(file).unwrap());
    data.devices[0].stats.num_ooms = 1;
    let (refused, mut capture) = (folder.path().join("refused.memtrace"), Vec::new());
    memtrace_core::export::Export::write(&memtrace_core::export::Capture::default(), &data, &mut capture).unwrap();
    fs::write(&refused, capture).unwrap();
    let output = memtrace(&["plan", refused.to_str().unwrap(), "5KiB"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("may need more than the recording says: the program was refused memory."), "{said}");
    let replayed = prints(&["replay", refused.to_str().unwrap(), "--memory", "1GiB"]);
    assert!(replayed.contains("may need more than the recording says: the program was refused memory."), "{replayed}");
    let lost = fails(2, &["plan", recording().to_str().unwrap(), "1KiB"]);
    assert!(lost.contains("cannot plan for cpu: its log does not reproduce the peak"), "{lost}");
}

#[test]
fn a_replays_json_has_the_figures_of_each_allocator() {
    let folder = tempfile::tempdir().unwrap();
    let file = on_a_gpu(folder.path(), 0);
    let json = prints(&["replay", file.to_str().unwrap(), "--json", "--memory", "16GiB"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["device"], &json["memory_bytes"]), (&"cuda:0".into(), &(16_u64 << 30).into()));
    let allocators = json["allocators"].as_array().unwrap();
    assert_eq!(allocators.len(), 6);
    let data = memtrace_core::open(&file).unwrap();
    for found in allocators {
        let (reserved, live) =
            (found["reserved_peak_bytes"].as_u64().unwrap(), found["live_peak_bytes"].as_u64().unwrap());
        assert_eq!(live, data.devices[0].peak.bytes, "{found}");
        let columns = found["reserved_bytes"].as_array().unwrap();
        assert_eq!(columns.iter().map(|column| column.as_u64().unwrap()).max(), Some(reserved), "{found}");
        assert!(found["runs_out"].is_null() && reserved >= live);
    }
    let packed = json["packing"]["bytes"].as_u64().unwrap();
    assert!(packed >= json["packing"]["live_peak_bytes"].as_u64().unwrap());
}
