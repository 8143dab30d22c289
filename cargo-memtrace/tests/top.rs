//! `top` on a real pseudo-terminal, while a real program records: keys, sizes of the window, the program's end.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use tempfile::TempDir;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// The program that the tests watch: a number is a block of so many MiB, `free` frees the newest one, `end` ends it.
#[test]
#[ignore = "a program for the other tests"]
fn program() {
    let mut blocks = Vec::new();
    println!("ready");
    for line in std::io::stdin().lines().map(Result::unwrap) {
        match line.parse::<usize>() {
            Ok(size) => blocks.push(std::hint::black_box(vec![1u8; size << 20])),
            Err(_) if line == "free" => _ = blocks.pop(),
            Err(_) => return,
        }
    }
}

/// Waits until it is so.
#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The program above, recording to a file.
struct Program(Child);

impl Program {
    fn start(file: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "program", "--ignored", "--nocapture"]).env("MEMTRACE", "1").env("MEMTRACE_OUT", file);
        command.env("MEMTRACE_AUTOSTART", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("ready")));
        // It goes on to write.
        std::thread::spawn(move || lines.for_each(drop));
        Self(child)
    }

    fn does(&mut self, line: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn end(mut self) {
        self.does("end");
        assert!(self.0.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// `top` on a pseudo-terminal.
struct Top {
    child: Child,
    terminal: File,
    window: File,
    written: Arc<Mutex<Vec<u8>>>,
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    command.args(["memtrace", "top"]).args(arguments).env_remove("COLUMNS").env("NO_COLOR", "1");
    command
}

impl Top {
    fn start(arguments: &[&str], size: (u16, u16)) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let window = File::options().read(true).write(true).open(name).unwrap();
        let terminal = File::from(terminal);
        resize(&terminal, size);
        let end = || Stdio::from(window.try_clone().unwrap());
        let child = command(arguments).stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (mut reader, shared) = (terminal.try_clone().unwrap(), written.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                shared.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
        });
        Self { child, terminal, window, written }
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// The lines of the last whole screen.
    fn screen(&self) -> Vec<String> {
        let written = self.written();
        let whole = written.rsplit("\x1b[H").find_map(|screen| screen.split_once("\x1b[J"));
        let Some((lines, _)) = whole else { return Vec::new() };
        lines.split('\n').map(|line| line.trim_end_matches('\r').replace("\x1b[K", "")).collect()
    }

    /// Waits for a screen that has this text.
    #[track_caller]
    fn shows(&self, text: &str) -> Vec<String> {
        let mut screen = Vec::new();
        let began = Instant::now();
        while !screen.iter().any(|line: &String| line.contains(text)) {
            assert!(began.elapsed() < Duration::from_secs(60), "{text}: {screen:#?}");
            std::thread::sleep(Duration::from_millis(5));
            screen = self.screen();
        }
        screen
    }

    /// What is left in the normal screen after it has ended in order.
    #[track_caller]
    fn left(mut self) -> String {
        let mut status = None;
        eventually("top ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let before = tcgetattr(&self.window).unwrap().local_modes;
        assert!(before.contains(LocalModes::ICANON | LocalModes::ECHO), "the terminal is as before");
        eventually("the last line", || self.written().ends_with('\n'));
        let written = self.written();
        let (_, left) = written.split_once("\x1b[?1049l").unwrap();
        assert!(status.unwrap().success(), "{left}");
        left.to_owned()
    }
}

/// What a command writes to a terminal.
fn on_a_terminal(mut command: Command) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let window = File::options().read(true).write(true).open(name).unwrap();
    let mut child = command.stdout(window).spawn().unwrap();
    drop(command);
    let (mut terminal, mut written, mut buffer) = (File::from(terminal), Vec::new(), [0; 4096]);
    // The end of what a terminal shows is an error.
    while let Ok(read @ 1..) = terminal.read(&mut buffer) {
        written.extend_from_slice(&buffer[..read]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8(written).unwrap()
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn resize(terminal: &File, (width, height): (u16, u16)) {
    tcsetwinsize(terminal, Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

fn begin(folder: &TempDir) -> (Program, String) {
    let file = folder.path().join("run.memtrace");
    (Program::start(&file), file.to_str().unwrap().to_owned())
}

#[test]
fn keys_and_windows_of_any_size_are_obeyed_while_a_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (mut program, file) = begin(&folder);
    let mut top = Top::start(&[&file, "--interval", "0.1"], (100, 30));
    assert_eq!(top.shows("Live on cpu, by line").len(), 30);
    top.shows("Growth");
    program.does("5");
    top.shows("+5.000 MiB");
    top.shows("(top::program)");
    top.press("s");
    top.shows("sorted by growth");
    top.press("/TOP.rs");
    top.shows("filter: TOP.rs_");
    top.press("x\x7f\r");
    top.shows("filter: TOP.rs;");
    top.shows("rows not matching the filter)");
    top.press("\x1b");
    let unfiltered = top.shows("sorted by growth; every");
    assert!(!unfiltered.iter().any(|line| line.contains("not matching the filter")), "{unfiltered:#?}");

    top.press(" ");
    top.shows("FROZEN");
    program.does("30");
    // A later look has seen the block once the file has it.
    eventually("35 MiB are committed", || once(&file).contains("35.00 MiB"));
    std::thread::sleep(Duration::from_millis(300));
    top.press("s");
    let frozen = top.shows("sorted by count");
    assert!(!frozen.iter().any(|line| line.contains("35.00 MiB")), "{frozen:#?}");
    top.press(" ");
    top.shows("+35.00 MiB");

    top.press("b");
    top.shows("Live on cpu, by line of the model");
    top.press("?");
    top.shows("Ctrl-C     end");
    top.press("?");
    for (width, height) in [(40, 12), (20, 4), (1, 1), (200, 50), (70, 24)] {
        resize(&top.terminal, (width, height));
        let is_narrow = |line: &String| line.chars().count() <= width as usize;
        eventually(&format!("{width}×{height}"), || {
            let screen = top.screen();
            screen.len() == height as usize && screen.iter().all(is_narrow)
        });
    }
    program.end();
    let left = top.left();
    assert!(left.contains("The process has ended: this is the state at its end.\r\n"), "{left}");
    assert!(left.ends_with("Ended: nobody records any more.\r\n") && !left.contains('\x1b'), "{left}");
}

/// What `--once` prints.
fn once(target: &str) -> String {
    let Output { stdout, stderr, status } = command(&[target, "--once"]).output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[test]
fn a_killed_program_is_one_that_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (mut program, file) = begin(&folder);
    let top = Top::start(&[&file, "--interval", "0.1"], (80, 24));
    top.shows("Live on cpu");
    program.does("7");
    top.shows("+7.000 MiB");
    program.kill();
    let left = top.left();
    assert!(left.contains("The process was killed: this is the state at its last commit."), "{left}");
    assert!(left.contains("7.000 MiB"), "{left}");
}

#[test]
fn somebody_may_end_it_at_any_time() {
    let folder = tempfile::tempdir().unwrap();
    let (program, file) = begin(&folder);
    for end in ["q", "\x03", "SIGTERM"] {
        let mut top = Top::start(&[&file], (80, 24));
        top.shows("Live on cpu");
        if end == "SIGTERM" {
            kill_process(Pid::from_child(&top.child), Signal::TERM).unwrap();
        } else {
            top.press(end);
        }
        let left = top.left();
        assert!(left.contains("Live on cpu, by line") && !left.contains("Ended"), "{end:?}: {left}");
    }
    program.end();
}

#[test]
fn a_folder_or_a_process_stands_for_the_recordings_that_are_being_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    Program::start(&file("old.memtrace")).end();
    let (first, mut second) = (Program::start(&file("a.memtrace")), Program::start(&file("b.memtrace")));
    let mut top = Top::start(&[folder.path().to_str().unwrap(), "--interval", "0.1"], (100, 40));
    top.shows("b.memtrace");
    let ranks = top.shows(" a.memtrace");
    assert!(!ranks.iter().any(|line| line.contains("old.memtrace")), "{ranks:#?}");
    second.does("9");
    top.press("\x1b[B");
    top.shows("+9.000 MiB");
    let third = Program::start(&file("c.memtrace"));
    top.shows(" c.memtrace");

    let of_process = once(&third.0.id().to_string());
    assert!(of_process.contains("Live on cpu, by line") && !of_process.contains("Ranks"), "{of_process}");
    assert!(of_process.contains(&format!("process {},", third.0.id())), "{of_process}");
    let of_this = once(&std::process::id().to_string());
    assert!(["a.memtrace", "b.memtrace", "c.memtrace"].iter().all(|name| of_this.contains(name)), "{of_this}");
    [first, second, third].into_iter().for_each(Program::end);
    assert!(top.left().contains("b.memtrace (ended)"));
}

#[test]
fn a_process_that_records_nothing_is_told_how_to() {
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    let output = command(&[&other.id().to_string()]).output().unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("writes no recording") && error.contains("cargo memtrace run"), "{error}");
}

/// Bytes of the file, cut anywhere: the picture has the totals and the rows of the report of the same bytes.
#[test]
fn a_growing_and_a_torn_file_are_right_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let (mut program, file) = begin(&folder);
    for step in 0..12 {
        program.does(if step % 4 == 3 { "free" } else { "2" });
        std::thread::sleep(Duration::from_millis(130));
    }
    program.kill();
    let bytes = fs::read(&file).unwrap();
    let cut = folder.path().join("cut.memtrace");
    let name = cut.to_str().unwrap();
    let (mut different, mut last) = (0, String::new());
    for part in 1..=16 {
        fs::write(&cut, &bytes[..bytes.len() * part / 16]).unwrap();
        let Some(report) = report_at_end(name) else { continue };
        let picture = once(name);
        // A commit before the first block.
        if report.starts_with("memtrace: nothing was recorded\n") {
            assert!(picture.contains("\nNothing is recorded yet."), "{picture}");
            continue;
        }
        let live = report.split("Live at the end: ").nth(1).and_then(|rest| rest.split(" on cpu").next()).unwrap();
        assert!(picture.contains(&format!("\n{live} live, ")), "{live}: {picture}");
        let (_, table) = report.split_once("  Location\n").unwrap();
        for row in table.lines().filter(|row| !row.ends_with(" more rows)")) {
            let bytes = row.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
            let label = row.rsplit("  ").next().unwrap();
            let is_same = |line: &str| line.trim_start().starts_with(&bytes) && line.ends_with(label);
            assert!(picture.lines().any(is_same), "{row}: {picture}");
        }
        different += usize::from(picture != last);
        last = picture;
    }
    assert!(different > 5, "the file has been cut at several commits: {different}");
}

/// The report of a file's last commit; `None` if there is no commit.
fn report_at_end(file: &str) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    command.args(["memtrace", "report", file, "--at", "end", "--by", "line", "--top", "1000"]).env_remove("COLUMNS");
    let output = command.output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_reports_places_can_be_clicked_on_a_terminal_only() {
    let folder = tempfile::tempdir().unwrap();
    let (mut program, file) = begin(&folder);
    program.does("5");
    program.end();
    let report = |form: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
        command.args(["memtrace", "report", &file]).env_remove("NO_COLOR").env("TERM", "xterm");
        command.env("MEMTRACE_HYPERLINKS", form);
        command
    };
    let this = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/top.rs");
    let link = format!("\x1b]8;;vscode://file{}:", this.display());
    assert!(on_a_terminal(report("vscode")).contains(&link));
    let mut without = report("vscode");
    without.env("NO_COLOR", "1");
    for plain in [on_a_terminal(report("none")), on_a_terminal(without)] {
        assert!(!plain.contains("\x1b]8") && plain.contains("tests/top.rs:"), "{plain}");
    }
    for (colours, escapes) in [("auto", "\x1b"), ("always", "\x1b]8")] {
        let piped = report("vscode").args(["--color", colours]).output().unwrap();
        assert!(piped.status.success() && !String::from_utf8(piped.stdout).unwrap().contains(escapes));
    }
}
