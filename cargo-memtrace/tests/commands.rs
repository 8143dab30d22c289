//! The commands as a user runs them: what they print, where they write, and their exit codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use memtrace_core::snapshot::{DeviceMemory, HostMemory, SystemMemory, UnifiedMemory};

/// A small recording of one device with scopes, names and a temporary.
fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/everything.memtrace")
}

fn memtrace(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    command.arg("memtrace").args(arguments).env_remove("COLUMNS").env("NO_COLOR", "1").output().unwrap()
}

/// The output of a command that must succeed.
#[track_caller]
fn prints(arguments: &[&str]) -> String {
    let output = memtrace(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The message of a command that must fail with this exit code.
#[track_caller]
fn fails(code: i32, arguments: &[&str]) -> String {
    let output = memtrace(arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(error.starts_with("error: "), "{arguments:?}: {error}");
    error
}

#[test]
fn every_reading_command_prints_text_and_json_of_its_version() {
    let file = recording();
    let file = file.to_str().unwrap();
    for (command, version) in
        [("report", 2), ("advise", 2), ("leaks", 2), ("temporaries", 2), ("timeline", 1), ("replay", 1)]
    {
        assert!(prints(&[command, file]).contains("cpu"), "{command}");
        let json: serde_json::Value = serde_json::from_str(&prints(&[command, file, "--json"])).unwrap();
        assert_eq!(json["version"], version, "{command}");
    }
    let explained = prints(&["explain", file, "model.rs:7"]);
    assert!(explained.contains("src/model.rs:7 (Net::forward)"), "{explained}");
}

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
    assert!(fits.starts_with("T4 (14.56 GiB by CUDA): fits, ") && fits.contains("\nRTX 4090 (23.52 GiB by"), "{fits}");
    assert!(fits.contains("src/model.rs") && fits.contains("= needed of 23.52 GiB"), "{fits}");
    assert!(fails(1, &on("T4,16MiB")).contains("does not fit on 16MiB"));
    let output = memtrace(&on("200MiB"));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(fails(2, &on("RTX-1")).contains("no card \"RTX-1\" is known"));
    let all = prints(&["fit", "--recording", file.to_str().unwrap()]);
    assert_eq!(all.lines().filter(|line| line.contains(" by CUDA): fits, ")).count(), 15, "{all}");
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
    assert!(said.starts_with("NVIDIA GeForce RTX 4090 (22.49 GiB by CUDA): fits, "), "{said}");
    assert!(said.contains("\nTesla V100 (10.00 MiB by CUDA): does not fit, "), "{said}");
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
    assert_eq!(all.lines().filter(|line| line.contains(" by CUDA): fits, ")).count(), 15, "{all}");
    let sized = said(&["--gpus", "128GiB,T4"], 0);
    assert!(sized.starts_with("128GiB (128.0 GiB of the host's memory): fits, "), "{sized}");
    assert!(sized.contains("\nT4 (14.56 GiB by CUDA): fits, "), "{sized}");
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
    assert_eq!(fails(1, &["plan", file, "1KiB"]), "error: 3.418 KiB short of 1KiB\n");
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

#[test]
fn the_reports_figures_are_those_of_the_recording() {
    let file = recording();
    let data = memtrace_core::open(&file).unwrap();
    let read = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&prints(&[&[args[0], file.to_str().unwrap()], &args[1..]].concat())).unwrap()
    };
    let json = read(&["report", "--by", "line", "--json"]);
    assert_eq!(json["sections"].as_array().unwrap().len(), 1);
    let table = &json["devices"][0]["peak_by_line"];
    let sum: u64 = table["rows"].as_array().unwrap().iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    let device = memtrace_core::analysis::device_or_main(&data, None).unwrap();
    assert_eq!(sum, device.peak.total());
    let whole = read(&["export", "--to", "json", "-o", "-"]);
    assert_eq!(*table, whole["devices"][0]["peak_by_line"], "both commands print one document");
    assert_eq!(json["devices"][0]["peak"], whole["devices"][0]["peak"]);
    assert!(json["devices"][0].get("peak_by_function").is_none() && json["devices"][0].get("scopes").is_none());
}

#[test]
fn a_recording_does_not_differ_from_itself_and_a_changed_peak_does() {
    let file = recording();
    let file = file.to_str().unwrap();
    assert!(prints(&["diff", file, file]).contains("both times"));
    let changed = prints(&["diff", file, file, "--at", "end", "--at-after", "peak", "--threshold", "1", "--md"]);
    assert!(changed.starts_with("### memtrace") && changed.contains("| Change | Before | After |"), "{changed}");
}

#[test]
fn checks_end_with_0_or_1_and_say_why() {
    let file = recording();
    let file = file.to_str().unwrap();
    assert!(prints(&["check", file, "--peak", "1 GiB"]).starts_with("ok: the peak of "));
    assert!(prints(&["check", file, "--baseline", file]).starts_with("ok: "));
    let over = fails(1, &["check", file, "--peak", "16 B"]);
    assert!(over.contains("is over the limit of 16 B by"), "{over}");
    assert!(fails(2, &["check", file]).contains("--peak"));
}

#[test]
fn a_line_and_its_recording_are_named_in_any_order_and_explained_in_the_reports_words() {
    let file = recording();
    let file = file.to_str().unwrap();
    assert_eq!(prints(&["explain", file, "model.rs:7"]), prints(&["explain", "model.rs:7", file]));
    assert!(
        fails(2, &["explain", "model.rs:7", "gone.memtrace"])
            .contains("No such file: model.rs:7, and gone.memtrace is none either")
    );
    assert!(fails(2, &["explain", file]).contains("name a line"));
}

#[test]
fn tables_that_are_asked_for_are_printed_or_said_to_be_empty() {
    let file = recording();
    let file = file.to_str().unwrap();
    let keys = ["line", "function", "operator", "module", "category", "scope", "parameter", "name", "age", "thread"];
    for key in keys {
        let text = prints(&["report", file, "--by", key]);
        assert!(text.contains(&format!("At the peak, by {key}\n")), "{key}: {text}");
    }
    assert!(prints(&["report", file, "--by", "line,scope"]).contains("forward"));
}

#[test]
fn a_report_that_is_read_as_a_recording_is_called_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let file = recording();
    for (name, text, what) in [
        ("a.txt", prints(&["report", file.to_str().unwrap()]), "a report as text"),
        ("b.txt", prints(&["report", file.to_str().unwrap(), "--color", "always"]), "a report as text"),
        ("c.json", prints(&["report", file.to_str().unwrap(), "--json"]), "JSON"),
        ("d.html", prints(&["view", file.to_str().unwrap(), "-o", "-"]), "a page"),
        ("e.svg", prints(&["flamegraph", file.to_str().unwrap(), "-o", "-"]), "XML"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let error = fails(2, &["report", path.to_str().unwrap()]);
        assert!(error.contains(&format!("it is {what}")), "{name}: {error}");
    }
}

#[test]
fn a_name_that_says_another_kind_is_refused_and_output_is_the_long_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run-1.memtrace");
    fs::copy(recording(), &file).unwrap();
    let (file, path) = (file.to_str().unwrap(), |name: &str| folder.path().join(name).to_str().unwrap().to_owned());
    for command in ["flamegraph", "timeline"] {
        assert!(fails(2, &[command, file, "-o", &path("x.png")]).contains("kind .svg"), "{command}");
        prints(&[command, file, "--output", &path(&format!("{command}.svg"))]);
    }
    assert!(fails(2, &["view", file, "-o", &path("x.svg")]).contains("kind .html"));
    prints(&["view", file, "--output", &path("x.htm.html")]);
    for (format, name) in [("pytorch", "run-1.pickle"), ("folded", "run-1.folded"), ("csv", "run-1.csv")] {
        prints(&["export", file, "--to", format]);
        assert!(folder.path().join(name).exists(), "{name}");
    }
    assert!(!folder.path().join("x.png").exists());
}

#[test]
fn bash_completes_the_commands_behind_cargo_and_leaves_cargos_own_to_cargo() {
    let script = prints(&["completions", "bash"]);
    let completed = |words: &str| {
        let test = format!(
            "{script}\n_cargo() {{ COMPREPLY=(\"of cargo: $*\"); }}\nCOMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))\n\
             _cargo_or_memtrace \"${{COMP_WORDS[0]}}\" \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
             echo \"${{COMPREPLY[@]}}\"; complete -p cargo"
        );
        let output = Command::new("bash").args(["--norc", "-c", &test]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(completed("cargo memtrace rep").starts_with("report replay\n"), "{}", completed("cargo memtrace rep"));
    assert!(completed("cargo memtrace report --by").contains("--by"), "{}", completed("cargo memtrace report --by"));
    assert!(completed("cargo buil").starts_with("of cargo: cargo buil"), "{}", completed("cargo buil"));
    assert!(completed("cargo buil").contains("-F _cargo_or_memtrace cargo"));
}

#[test]
fn files_are_written_whole_beside_the_recording_or_where_they_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run-1.memtrace");
    fs::copy(recording(), &file).unwrap();
    let file = file.to_str().unwrap();
    prints(&["flamegraph", file]);
    assert!(fs::read_to_string(folder.path().join("run-1.svg")).unwrap().contains("<svg"));
    for (format, name) in [
        ("pytorch", "a.pickle"),
        ("chrome", "a.trace.json"),
        ("folded", "a.folded"),
        ("pprof", "a.pb.gz"),
        ("dhat", "a.dhat.json"),
        ("json", "a.json"),
    ] {
        let out = folder.path().join(name);
        prints(&["export", file, "--to", format, "-o", out.to_str().unwrap()]);
        assert!(out.metadata().unwrap().len() > 0, "{format}");
    }
    for format in ["parquet", "csv"] {
        let runs = folder.path().join(format);
        prints(&["export", file, "--to", format, "-o", runs.to_str().unwrap(), "--label", "commit=1a2b"]);
        let run = fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
        assert!(run.join(format!("labels.{format}")).metadata().unwrap().len() > 0, "{}", run.display());
    }
    let small = prints(&["export", file, "--to", "json", "--max-size", "8 KiB", "-o", "-"]);
    assert!(small.len() <= 8 << 10 && small.contains("left_out"), "{} bytes", small.len());
    let pickle = folder.path().join("a.pickle");
    assert!(prints(&["report", pickle.to_str().unwrap()]).contains("src/model.rs:7"), "its own pickle is read");
    assert!(prints(&["export", file, "--to", "folded", "-o", "-"]).contains(';'));
    assert!(prints(&["report", folder.path().to_str().unwrap()]).contains("2 ranks read."), "a folder's recordings");
}

#[test]
fn the_page_and_the_completions_know_every_command() {
    let (page, script) = (prints(&["man"]), prints(&["completions", "bash"]));
    for command in
        ["run", "test", "report", "explain", "diff", "flamegraph", "timeline", "export", "check", "baselines", "doctor"]
    {
        assert!(page.contains(command) && script.contains(command), "{command}");
    }
}

#[test]
fn doctor_says_what_of_a_program_can_be_recorded_and_why_not() {
    let itself = prints(&["doctor", env!("CARGO_BIN_EXE_cargo-memtrace")]);
    for expected in [
        "heap: recorded through the preload library",
        "CUDA memory: recorded through the preload library",
        "lines: yes",
        "physical memory: recorded",
    ] {
        assert!(itself.contains(expected), "{expected}: {itself}");
    }
    assert!(!itself.contains("linked against"), "{itself}");
    let folder = tempfile::tempdir().unwrap();
    for (arguments, why) in [
        (&["-static"][..], "linked statically"),
        (&["-Dmalloc_here=mi_malloc"], "(mimalloc)"),
        (&["-Dmalloc_here=_rjem_malloc"], "(jemalloc)"),
        (&["-Dmalloc_here=malloc"], "(malloc)"),
    ] {
        let (source, program) = (folder.path().join("own.c"), folder.path().join("own"));
        fs::write(&source, "void *malloc_here(unsigned long n) { return 0; } int main(void) { return 0; }").unwrap();
        let mut compile = Command::new("cc");
        assert!(
            compile
                .args(["-w", "-fno-builtin"])
                .args(arguments)
                .arg(&source)
                .arg("-o")
                .arg(&program)
                .status()
                .unwrap()
                .success()
        );
        let other = prints(&["doctor", program.to_str().unwrap()]);
        let line = other.lines().find(|line| line.starts_with("heap: not recorded: ")).unwrap_or_default();
        assert!(line.contains(why) && !other.contains("Cargo.toml"), "{why}: {other}");
    }
    let machine = prints(&["doctor"]);
    for expected in ["cargo: cargo 1.", "C compiler: ", "NVIDIA driver: ", "preload library: ", "simulated GPU: "] {
        assert!(machine.contains(expected), "{expected}: {machine}");
    }
    let is_emulated_only = machine.lines().any(|line| {
        line.starts_with("platform: ") && line.contains("CUDA memory are recorded") && line.contains("emulator only")
    });
    assert_eq!(is_emulated_only, cfg!(target_arch = "aarch64"), "{machine}");
    let text = folder.path().join("text");
    fs::write(&text, "no program").unwrap();
    assert!(fails(2, &["doctor", text.to_str().unwrap()]).contains("it is not an ELF program"));
    fails(2, &["doctor", folder.path().join("missing").to_str().unwrap()]);
}

#[test]
fn the_help_of_every_command_has_examples() {
    let commands = [
        "run",
        "test",
        "report",
        "advise",
        "explain",
        "leaks",
        "growth",
        "top",
        "temporaries",
        "fit",
        "replay",
        "diff",
        "flamegraph",
        "timeline",
        "export",
        "check",
        "doctor",
        "completions",
        "man",
    ];
    for command in commands {
        assert!(prints(&["help", command]).contains(&format!("  cargo memtrace {command}")), "{command}");
    }
    assert!(prints(&["--help"]).contains("Examples:"));
}

#[test]
fn view_writes_a_page_that_holds_the_reports_answer_and_compares_two_recordings() {
    let (file, folder) = (recording(), tempfile::tempdir().unwrap());
    let (file, page) = (file.to_str().unwrap(), folder.path().join("page.html"));
    prints(&["view", file, "-o", page.to_str().unwrap(), "--no-open"]);
    let alone = fs::read_to_string(&page).unwrap();
    let answer = prints(&["report", file]).lines().nth(1).unwrap().to_owned();
    assert!(answer.starts_with("Peak ") && alone.contains(&answer), "{answer}");
    assert!(alone.contains("\"changes\":null"));
    let compared = prints(&["view", file, file, "-o", "-"]);
    assert!(compared.contains("memtrace: difference of"));
}
