//! `run` as a user runs it, with a program that contains memtrace.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// The program that the other tests record: they run a copy of this file.
#[test]
#[ignore = "a program for the other tests"]
fn program() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<usize>().ok());
    let code = std::env::var("TEST_CODE").unwrap_or_default();
    if std::env::var_os("TEST_REMOVE").is_some() {
        fs::remove_file(std::env::current_exe().unwrap()).unwrap();
    }
    std::thread::sleep(Duration::from_millis(number("TEST_SLEEP").unwrap_or(0) as u64));
    let block = std::hint::black_box(vec![1u8; number("TEST_MIB").unwrap_or(3) << 20]);
    println!("{} {code}", block.len());
    for number in 0..number("TEST_RUNS").unwrap_or(0) {
        memtrace::scope("step", || {
            let block = std::hint::black_box(vec![1u8; 5000]);
            if number < 3 || std::env::var_os("TEST_LEAK").is_some() {
                std::mem::forget(block);
            }
        });
    }
    if let Ok(size) = std::env::var("TEST_EXEC") {
        let mut again = Command::new(std::env::current_exe().unwrap());
        panic!("{}", again.args(TEST).env_remove("TEST_EXEC").env("TEST_MIB", size).exec());
    }
    for size in std::env::var("TEST_CHILDREN").iter().flat_map(|sizes| sizes.split_whitespace()) {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(TEST).env_remove("TEST_CHILDREN").env("TEST_MIB", size).stdout(Stdio::null());
        assert!(child.status().unwrap().success());
    }
    if let Ok(size) = std::env::var("TEST_LAUNCH") {
        let mut server = Command::new(std::env::current_exe().unwrap());
        server.args(TEST).env_remove("TEST_LAUNCH").env("TEST_MIB", size).env("TEST_SLEEP", "2500");
        // It outlives this process.
        drop(server.stderr(Stdio::null()).spawn().unwrap());
        // So that it has begun to record.
        std::thread::sleep(Duration::from_millis(1000));
    }
    match &*code {
        "kill" => kill_process(rustix::process::getpid(), Signal::KILL).unwrap(),
        "wait" => std::thread::sleep(Duration::from_secs(1000)),
        code => std::process::exit(code.parse().unwrap()),
    }
}

/// A folder with a copy of the program, outside of any package.
fn folder_with_program() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(std::env::current_exe().unwrap(), folder.path().join("program")).unwrap();
    folder
}

/// The arguments with which the program is the test above.
const TEST: [&str; 4] = ["--exact", "program", "--ignored", "--nocapture"];

/// `run` of the program, which ends with this code.
fn run(folder: &TempDir, code: &str, options: &[&str]) -> Command {
    let mut command = memtrace(folder, &[&["run", "--exec", "./program"], options, &["--"], &TEST].concat());
    command.env("TEST_CODE", code);
    command
}

fn memtrace(folder: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    command.arg("memtrace").args(arguments).current_dir(folder.path()).env("NO_COLOR", "1").env_remove("COLUMNS");
    command.env_remove("CARGO_TARGET_DIR");
    command
}

fn outputs(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn recordings(folder: &TempDir) -> Vec<String> {
    let files = fs::read_dir(folder.path().join("target/memtrace")).unwrap();
    let mut names: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_programs_output_and_exit_code_are_its_own_and_the_answer_is_on_stderr() {
    let folder = folder_with_program();
    let output = run(&folder, "7", &[]).output().unwrap();
    let (out, errors) = outputs(&output);
    assert_eq!(output.status.code(), Some(7), "{errors}");
    assert!(out.ends_with("3145728 7\n"), "{out}");
    for expected in
        ["Peak ", "running.rs:25", "recorded to target/memtrace/program-1.memtrace", "next: cargo memtrace report"]
    {
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
}

#[test]
fn a_recording_has_names_and_resident_memory_after_the_program_is_gone() {
    let folder = folder_with_program();
    run(&folder, "0", &[]).output().unwrap();
    fs::remove_file(folder.path().join("program")).unwrap();
    let (out, errors) = outputs(&memtrace(&folder, &["report"]).output().unwrap());
    assert!(out.contains("running.rs:25 (running::program)"), "{out} {errors}");
    assert!(out.contains("Resident memory") && out.contains("of it mapped files and code"), "{out}");
}

#[test]
fn a_scope_that_leaks_fails_and_what_a_recording_does_not_tell_is_undecided() {
    let folder = folder_with_program();
    let check = |runs: &str, leak: bool, arguments: &[&str]| {
        let file = format!("{runs}-{leak}.memtrace");
        let mut command = run(&folder, "0", &["--out", &file]);
        command.env("TEST_RUNS", runs).envs(leak.then_some(("TEST_LEAK", "1"))).output().unwrap();
        let output = memtrace(&folder, &[&["check", &file, "--no-leak"], arguments].concat()).output().unwrap();
        let (out, errors) = outputs(&output);
        (output.status.code(), out + &errors)
    };
    let ok = "ok: no leak on cpu in the scopes `step`, in blocks of 1 KiB or more\n";
    assert_eq!(check("40", false, &[]), (Some(0), ok.to_owned()));
    let (code, said) = check("41", true, &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("error: leak in scope `step` on cpu: 190.4 KiB in 39 runs, most of it at "), "{said}");
    assert!(said.contains("running.rs:"), "{said}");
    for (runs, why) in [("0", "no scope was open on cpu"), ("4", "`step` ended 4 times"), ("8", "only 8 times")] {
        let (code, said) = check(runs, true, &[]);
        assert!(code == Some(3) && said.starts_with("undecided: leaks on cpu: ") && said.contains(why), "{said}");
    }
    let (code, said) = check("3", true, &["--peak", "1 B"]);
    assert!(code == Some(1) && said.contains("undecided: ") && said.contains("error: the peak "), "{said}");
    let (code, json) = check("2", true, &["--json"]);
    assert!(code == Some(3) && json.contains("\"met\": null"), "{json}");
}

#[test]
fn the_rank_that_leaks_most_is_named_and_those_that_do_not_tell() {
    let folder = folder_with_program();
    let rank = |number: u32, runs: &str, leak: bool| {
        let mut command = run(&folder, "0", &["--out", &format!("rank{number}.memtrace")]);
        command.env("TEST_RUNS", runs).envs(leak.then_some(("TEST_LEAK", "1"))).output().unwrap();
    };
    let check = |files: &[&str]| {
        let output = memtrace(&folder, &[&["check", "--no-leak"], files].concat()).output().unwrap();
        let (out, errors) = outputs(&output);
        (output.status.code(), out, errors)
    };
    let runs = [("40", false), ("20", true), ("41", true), ("4", true), ("50", false)];
    (0..).zip(runs).for_each(|(number, (runs, leak))| rank(number, runs, leak));
    let files = ["rank0.memtrace", "rank1.memtrace", "rank2.memtrace", "rank3.memtrace", "rank4.memtrace"];
    let (code, _, errors) = check(&files);
    assert_eq!(code, Some(1), "{errors}");
    let leak = "error: 2 of 5 ranks fail: ranks 1, 2. Worst: rank 2: leak in scope `step` on cpu: 190.4 KiB ";
    assert!(errors.lines().any(|line| line.starts_with(leak)), "{errors}");
    let open = "undecided: 1 of 5 ranks cannot be judged: rank 3: leaks on cpu: scope `step` ended 4 times";
    assert!(errors.lines().any(|line| line.starts_with(open)), "{errors}");
    let (code, _, errors) = check(&[files[0], files[3]]);
    assert_eq!((code, errors.lines().count()), (Some(3), 1), "{errors}");
    let (code, out, errors) = check(&[files[0], files[4]]);
    let ok = "ok: 2 of 2 ranks pass. First: rank 0: no leak on cpu in the scopes `step`, in blocks of 1 KiB or more\n";
    assert_eq!((code, out.starts_with(ok), &*errors), (Some(0), true, ""), "{out}");
}

#[test]
fn the_first_screen_says_why_lines_have_no_names() {
    let folder = folder_with_program();
    let stripped = Command::new("strip").arg(folder.path().join("program")).status().unwrap();
    assert!(stripped.success());
    let (_, errors) = outputs(&run(&folder, "0", &[]).output().unwrap());
    assert!(errors.contains("The line that held most: (no names)") && errors.contains("strip"), "{errors}");
    let named = outputs(&run(&folder_with_program(), "0", &[]).output().unwrap()).1;
    assert!(!named.contains("Notes"), "{named}");
}

#[test]
fn recordings_are_numbered_and_the_newest_are_kept() {
    let folder = folder_with_program();
    for _ in 0..3 {
        run(&folder, "0", &["--keep", "2"]).output().unwrap();
    }
    assert_eq!(recordings(&folder), ["program-2.memtrace", "program-3.memtrace"]);
    let named = ["--out", "here.memtrace", "--min-size", "4 MiB"];
    let (_, errors) = outputs(&run(&folder, "0", &named).output().unwrap());
    assert!(errors.contains(" to here.memtrace") && !errors.contains("running.rs:25"), "{errors}");
    let again = run(&folder, "0", &named).output().unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert!(outputs(&again).1.contains("here.memtrace exists"));
}

#[test]
fn a_signal_reaches_the_program_and_what_it_recorded_is_kept() {
    let folder = folder_with_program();
    let mut child = run(&folder, "wait", &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("3145728 wait")));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let (_, errors) = outputs(&output);
    assert_eq!(output.status.signal(), Some(15), "{errors}");
    assert!(errors.contains("program was ended by signal 15\n"), "{errors}");
    assert_eq!(recordings(&folder), ["program-1.memtrace"]);
}

/// The recording that a `run` says is its program's, and its peak.
fn answer(errors: &str) -> (String, String) {
    let after = |words: &str| errors.split(words).nth(1).and_then(|rest| rest.split_whitespace().next());
    let peak = errors.split("Peak ").nth(1).map(|rest| rest.split(" on ").next().unwrap().to_owned());
    (after("recorded to ").unwrap_or(errors).to_owned(), peak.unwrap_or_else(|| errors.to_owned()))
}

#[test]
fn each_of_several_runs_at_once_says_the_peak_of_its_own_program() {
    let folder = folder_with_program();
    for sizes in [&[16, 64][..], &[10, 20, 30, 40, 50, 60]] {
        let start = |(at, size): (usize, &usize)| {
            let mut command = run(&folder, "0", &[]);
            command.env("TEST_MIB", size.to_string()).env("TEST_SLEEP", (at * 150).to_string());
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let runs: Vec<_> = sizes.iter().enumerate().map(start).collect();
        let mut files = Vec::new();
        for (child, size) in runs.into_iter().zip(sizes) {
            let (file, peak) = answer(&outputs(&child.wait_with_output().unwrap()).1);
            assert!(peak.starts_with(&format!("{size}.")) && peak.ends_with("MiB"), "{peak}, not {size}");
            let (out, errors) = outputs(&memtrace(&folder, &["report", &file]).output().unwrap());
            assert!(out.contains(&format!("Peak {peak}")), "{out} {errors}");
            files.push(file);
        }
        files.sort();
        files.dedup();
        assert_eq!(files.len(), sizes.len());
    }
    assert_eq!(recordings(&folder).len(), 8, "and no list stays");
}

#[test]
fn what_a_launcher_left_running_is_not_replaced() {
    let folder = folder_with_program();
    let mut command = run(&folder, "0", &["--out", "a.memtrace"]);
    command.env("TEST_LAUNCH", "40").stdout(Stdio::null());
    let (_, errors) = outputs(&command.output().unwrap());
    assert!(errors.contains("recorded to a.memtrace") && errors.contains("Peak 3."), "{errors}");
    assert!(errors.contains("still records to a-2.memtrace"), "{errors}");
    let ended = || outputs(&memtrace(&folder, &["report", "a-2.memtrace"]).output().unwrap()).0;
    let whole = (0..100).map(|_| std::thread::sleep(Duration::from_millis(100))).any(|()| ended().contains("Peak 40."));
    assert!(whole, "{}", ended());
}

#[test]
fn names_that_were_not_there_at_the_end_can_be_found_later() {
    let folder = folder_with_program();
    fs::create_dir(folder.path().join("kept")).unwrap();
    fs::copy(folder.path().join("program"), folder.path().join("kept/program")).unwrap();
    let (_, errors) = outputs(&run(&folder, "0", &["--out", "a.memtrace"]).env("TEST_REMOVE", "1").output().unwrap());
    assert!(errors.contains("recorded to a.memtrace") && !errors.contains("running.rs"), "{errors}");
    for option in [["--binary", "kept/program"], ["--debug-dir", "kept"]] {
        let report =
            |file: &str| outputs(&memtrace(&folder, &[&["report", file], &option[..]].concat()).output().unwrap());
        let (out, errors) = report("a.memtrace");
        assert!(out.contains("running.rs") && out.contains("(running::program)"), "{out} {errors}");
    }
}

#[test]
fn files_with_the_names_that_run_once_used_are_left_alone() {
    let folder = folder_with_program();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("victim"), "precious").unwrap();
    std::os::unix::fs::symlink("victim", path("a.memtrace.new")).unwrap();
    fs::write(path(".b.memtrace.run"), "mine").unwrap();
    run(&folder, "0", &["--out", "a.memtrace"]).output().unwrap();
    assert!(path("a.memtrace").symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read_link(path("a.memtrace.new")).unwrap().to_str(), Some("victim"));
    assert_eq!(fs::read_to_string(path("victim")).unwrap(), "precious");
    let refused = run(&folder, "0", &["--out", "b.memtrace"]).output().unwrap();
    assert_eq!((refused.status.code(), &*fs::read_to_string(path(".b.memtrace.run")).unwrap()), (Some(2), "mine"));
}

#[test]
fn a_program_that_is_killed_at_once_has_one_statement() {
    let folder = folder_with_program();
    let output = run(&folder, "kill", &["--min-size", "1 GiB"]).output().unwrap();
    let (_, errors) = outputs(&output);
    assert_eq!(output.status.signal(), Some(9), "{errors}");
    let statements =
        ["nothing was recorded", "recorded to", "recorded no block"].map(|words| errors.matches(words).count());
    assert_eq!(statements.iter().sum::<usize>(), 1, "{errors}");
}

#[test]
fn a_percent_sign_in_the_target_folders_path_is_only_that() {
    let folder = folder_with_program();
    let target = folder.path().join("100%p/target");
    fs::create_dir_all(target.parent().unwrap()).unwrap();
    let mut command = memtrace(&folder, &[&["run", "--exec", "../program", "--"], &TEST[..]].concat());
    command.current_dir(target.parent().unwrap()).env("TEST_CODE", "0");
    let (_, errors) = outputs(&command.output().unwrap());
    assert!(errors.contains("recorded to target/memtrace/program-1.memtrace"), "{errors}");
    assert!(target.join("memtrace/program-1.memtrace").exists());
}

#[test]
fn the_answer_is_of_what_the_program_became() {
    let folder = folder_with_program();
    let (_, errors) = outputs(&run(&folder, "0", &["--out", "a.memtrace"]).env("TEST_EXEC", "40").output().unwrap());
    assert!(errors.contains("Peak 40.") && errors.contains("memtrace: recorded to a-2.memtrace\n"), "{errors}");
    fs::remove_file(folder.path().join("program")).unwrap();
    let (out, _) = outputs(&memtrace(&folder, &["report", "a-2.memtrace"]).output().unwrap());
    assert!(out.contains("(running::program)"), "{out}");
}

#[test]
fn of_children_the_largest_is_answered_and_small_ones_leave_no_file() {
    let folder = folder_with_program();
    let mut command = run(&folder, "0", &["--children=20MiB"]);
    let (out, errors) = outputs(&command.env("TEST_CHILDREN", "1 40 2 30").output().unwrap());
    assert!(out.contains("3145728 0"), "{out}");
    let held = |line: &str| line.split_once(" held ").is_some_and(|(_, held)| held.contains(" MiB at its peak"));
    let listed: Vec<&str> = errors.lines().filter(|line| held(line)).collect();
    assert!(listed.len() == 2 && listed[0].contains("held 40.") && listed[1].contains("held 30."), "{errors}");
    assert!(errors.contains("recordings removed, of processes that held less than 20.00 MiB: 3\n"), "{errors}");
    assert!(errors.contains("\nPeak 40."), "{errors}");
    assert_eq!(recordings(&folder).len(), 2);
    let next = errors.lines().last().unwrap().split_once("cargo memtrace ").unwrap().1;
    let (out, _) = outputs(&memtrace(&folder, &next.split(' ').collect::<Vec<_>>()).output().unwrap());
    assert!(out.contains("Peak 40."), "{out}");
    // One stays, however small.
    let (_, errors) = outputs(&run(&folder, "0", &["--children=1GiB"]).output().unwrap());
    assert!(errors.contains("\nPeak 3.") && !errors.contains("removed"), "{errors}");
}

#[test]
fn a_static_program_runs_and_why_nothing_is_recorded_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("own.c"), "int main(void) { return 6; }").unwrap();
    let compile = |command: &mut Command| command.arg(path("own.c")).arg("-o").arg(path("own")).status().unwrap();
    assert!(compile(Command::new("cc").arg("-static")).success());
    let output = memtrace(&folder, &["run", "--exec", "./own"]).output().unwrap();
    let (_, errors) = outputs(&output);
    assert_eq!(output.status.code(), Some(6), "{errors}");
    assert!(errors.contains("nothing was recorded of own: it is linked statically"), "{errors}");
    assert!(!errors.contains("building"), "{errors}");
}

/// Some do not start behind another library.
#[test]
fn nothing_is_preloaded_before_a_sanitizer() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(
        path("own.c"),
        "#include <stdlib.h>\nint main(void) { return getenv(\"NVTX_INJECTION64_PATH\") ? 1 : 7; }",
    )
    .unwrap();
    fs::write(path("empty.c"), "int nothing;").unwrap();
    let compile = |arguments: &[&str]| {
        assert!(Command::new("cc").args(arguments).current_dir(folder.path()).status().unwrap().success());
    };
    compile(&["-shared", "-fPIC", "empty.c", "-o", "libtsan.so.2"]);
    compile(&["own.c", "-Wl,--no-as-needed", "./libtsan.so.2", "-o", "linked"]);
    compile(&["own.c", "-o", "plain"]);
    let run = |program: &str, preloaded: &str| {
        let output = memtrace(&folder, &["run", "--exec", program]).env("LD_PRELOAD", preloaded).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        outputs(&output).1
    };
    let errors = run("./linked", "");
    assert!(errors.contains("it is linked to libtsan.so.2, which takes the place of C's allocator"), "{errors}");
    let errors = run("./plain", &path("libtsan.so.2").display().to_string());
    assert!(errors.contains("nothing is recorded: libtsan.so.2, which is preloaded,"), "{errors}");
}

#[test]
fn a_variable_that_is_not_used_is_said() {
    let folder = folder_with_program();
    let said = |name: &str, value: &str| {
        let output = run(&folder, "0", &[]).env(name, value).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        outputs(&output).1.lines().find(|line| line.contains(" is not used")).map(str::to_owned)
    };
    let file = said("MEMTRACE_OUT", "b.pickle").unwrap();
    assert_eq!(file, "memtrace: MEMTRACE_OUT=b.pickle is not used: `run -o FILE` names the recording");
    assert!(recordings(&folder).len() == 1 && !folder.path().join("b.pickle").exists());
    let state = said("MEMTRACE", "state").unwrap();
    assert_eq!(state, "memtrace: MEMTRACE=state is not used: `run` records with the whole log");
    for (name, value) in [("MEMTRACE_OUT", ""), ("MEMTRACE", "1"), ("MEMTRACE", "all")] {
        assert_eq!(said(name, value), None, "{name}={value}");
    }
}

#[test]
fn a_name_of_no_format_is_refused_before_the_program_runs() {
    let folder = folder_with_program();
    for name in ["a", "a.xyz", "a.memtrace.bz2"] {
        let output = run(&folder, "0", &["--out", name]).output().unwrap();
        let (out, errors) = outputs(&output);
        assert!(output.status.code() == Some(2) && out.is_empty() && errors.contains("no known extension"), "{errors}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the program alone");
}

#[test]
fn messages_that_nobody_can_read_do_not_change_the_exit_code() {
    let folder = folder_with_program();
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(run(&folder, "7", &[]).stderr(full()).output().unwrap().status.code(), Some(7));
    assert_eq!(memtrace(&folder, &["report", "missing"]).stderr(full()).output().unwrap().status.code(), Some(2));
}
