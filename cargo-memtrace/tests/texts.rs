//! Texts that commands print: nothing in a recording, a path or an argument moves a cursor, forges a line, breaks XML, mentions
//! anybody or is computed by a spreadsheet.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use memtrace_core::export::{Capture, Export, Text};
use memtrace_core::report::Report;
use memtrace_core::snapshot::{Device, GpuTotals, GpuWork, KernelId, OutOfMemory, UnseenCalls};
use memtrace_core::{SnapshotData, visible};

/// Characters, and what a reader could act upon. Names of blocks have at most 256 bytes.
const HOSTILE: [&str; 4] = [
    "\u{1b}]0;x\u{7}\u{1b}[2J\r\n::error::a\t\u{9b}31m\u{202e}\u{2066}\u{2028}\0\u{7f}",
    "</script><b a='\"'>|`@all`&amp; https://e.e/ #12 $x$ ![a](b) ~~c~~ :key: @me]]>\n::error::b",
    // Written down before the first run: other characters of the same kinds.
    "\u{85}\u{61c}\u{180e}\u{200b}\u{2029}\u{e0041}\u{fffe}\u{ffff}\u{feff}\u{ad}\u{fe0f}\u{e0100}\u{3164}\u{1d173}\u{2062}\u{8}\u{b}\u{c}\u{e}\n  ::add-mask::c",
    "\u{1}\u{90}q\u{9c}\u{fdd0}\u{1ffff}\u{fffb}\u{34f}\u{115f}\u{10fffe}\u{2069}\u{206e}\u{17b4}GH-7 www.e.e a@b.c 1a2b3c4d5 \u{600}\r::error::d",
];

fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~') || !visible::is_obeyed(c) && HOSTILE.iter().all(|evil| !evil.contains(c))
}

fn golden_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/everything.memtrace")
}

fn golden() -> SnapshotData {
    memtrace_core::open(golden_file()).unwrap()
}

/// The recording of the goldens and a GPU that ran out of memory, with a hostile end of every text.
fn recording(evil: &str) -> SnapshotData {
    let mut data = golden();
    let mut gpu = data.devices[0].clone();
    (gpu.device, gpu.below_threshold) = (Device::Cuda(0), 0);
    let first = gpu.records[0];
    gpu.ooms = vec![OutOfMemory {
        size: 1 << 30,
        time_ns: 1000,
        device_free: Some(5),
        device_total: Some(9),
        context: first.context,
        stack: first.stack,
        thread: first.thread,
    }];
    gpu.stats.num_ooms = 1;
    data.devices.push(gpu);
    let process = &mut data.process;
    let texts = [&mut process.program, &mut process.host].into_iter();
    let texts = texts.chain(process.threads.iter_mut().map(|thread| &mut thread.name));
    let texts = texts.chain(data.contexts.iter_mut().skip(1).map(|context| &mut context.name));
    let names = data.devices.iter_mut().flat_map(|device| &mut device.names).map(|name| &mut name.name);
    let frames = data.stacks.frames.iter_mut().flat_map(|frame| [&mut frame.function, &mut frame.file]).flatten();
    let objects = data.objects.iter_mut().filter_map(|object| object.path.as_mut());
    texts.chain(names).chain(frames).chain(objects).for_each(|text| text.push_str(evil));
    data.process.program.insert(0, '=');
    data.health.import_notes.push(evil.to_owned());
    data.health.unreadable_objects.push(evil.to_owned());
    data.health.cuda.unseen_calls.push(UnseenCalls { function: evil.to_owned(), calls: 1 });
    let totals = GpuTotals { operations: 1, launches: 1, last_opaque: 1, ..GpuTotals::default() };
    data.gpu_work =
        Some(GpuWork { kernels: vec![evil.to_owned()], totals, opaque: vec![(KernelId(0), 1)], local: Vec::new() });
    data
}

struct Here {
    folder: tempfile::TempDir,
}

impl Here {
    /// A folder with the recording `evil.memtrace` and the ordinary one `plain.memtrace`.
    fn new(evil: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(golden_file(), folder.path().join("plain.memtrace")).unwrap();
        let mut capture = Vec::new();
        Capture::default().write(&recording(evil), &mut capture).unwrap();
        fs::write(folder.path().join("evil.memtrace"), capture).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
        command.arg("memtrace").args(arguments).current_dir(self.folder.path());
        command.env_remove("COLUMNS").output().unwrap()
    }

    /// What a command that must work prints; both outputs are safe.
    #[track_caller]
    fn prints(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        safe(arguments, &output);
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        safe(arguments, &output);
        String::from_utf8(output.stderr).unwrap()
    }
}

#[track_caller]
fn safe(arguments: &[&str], output: &Output) {
    for text in [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)) {
        let found = text.char_indices().find(|(_, c)| !is_printable(*c));
        let around = found.map(|(at, c)| (c, text[..at].chars().rev().take(60).collect::<Vec<_>>()));
        assert_eq!(around.map(|(c, before)| (c, before.into_iter().rev().collect::<String>())), None, "{arguments:?}");
        let forged = text.lines().find(|line| line.trim_start().starts_with("::"));
        assert_eq!(forged, None, "{arguments:?}");
    }
}

const TABLES: &str = "line,function,operator,module,category,scope,parameter,name,age,thread,stream,crate";

#[test]
fn every_reading_command_prints_visible_names() {
    for evil in HOSTILE {
        let here = Here::new(evil);
        for device in ["cpu", "cuda:0"] {
            for command in ["report", "advise", "leaks", "temporaries", "timeline"] {
                here.prints(&[command, "evil.memtrace", "--device", device]);
                let json = here.prints(&[command, "evil.memtrace", "--device", device, "--json"]);
                assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
            }
            let report = here.prints(&["report", "evil.memtrace", "--by", TABLES, "--device", device]);
            assert!(report.contains(&*visible::line(evil)), "the name is there: {report}");
        }
        here.prints(&["report", "evil.memtrace", "--at", "end"]);
        here.prints(&["report", "evil.memtrace", "--from", "0", "--to", "1"]);
        for by in ["line", "operator", "category"] {
            here.prints(&["timeline", "evil.memtrace", "--by", by]);
            here.prints(&["timeline", "evil.memtrace", "--by", by, "--json"]);
        }
        for subject in ["model.rs", "relu", "0x1000", "forward"] {
            let output = here.run(&["explain", "evil.memtrace", subject]);
            safe(&["explain", subject], &output);
        }
        for other in [["evil.memtrace", "plain.memtrace"], ["plain.memtrace", "evil.memtrace"]] {
            let by = TABLES.replace(",age", "");
            here.prints(&["diff", other[0], other[1], "--by", &by, "--threshold", "0"]);
            here.prints(&["diff", other[0], other[1], "--by", &by, "--threshold", "0", "--json"]);
        }
        here.fails(1, &["check", "evil.memtrace", "--no-leak", "--peak", "1"]);
        here.prints(&["check", "evil.memtrace", "--peak", "1GiB"]);
        for format in ["chrome", "layout", "folded", "dhat", "json"] {
            here.prints(&["export", "evil.memtrace", "--to", format, "-o", "-"]);
        }
        here.prints(&["view", "evil.memtrace", "plain.memtrace", "-o", "-"]);
        here.fails(3, &["fit", "--gpus", "T4", "--recording", "evil.memtrace"]);
        let others = [
            &["plan", "evil.memtrace", "1"][..],
            &["replay", "evil.memtrace", "--memory", "1"],
            &["growth", "evil.memtrace", "plain.memtrace"],
            &["top", "evil.memtrace", "plain.memtrace"],
        ];
        for words in others {
            safe(words, &here.run(words));
        }
    }
}

#[test]
fn the_explanation_of_a_refused_allocation_has_visible_names() {
    for evil in HOSTILE {
        let report = Report::of_refusal(&recording(evil), Device::Cuda(0)).unwrap();
        let text = Text::default().show(&report);
        assert!(text.contains(&*visible::line(evil)) && text.chars().all(is_printable), "{text}");
    }
}

#[test]
fn color_is_the_only_control_in_a_report() {
    let here = Here::new(HOSTILE[0]);
    let output = here.run(&["report", "evil.memtrace", "--color", "always"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\u{1b}[1m"));
    let rest = text.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
    assert!(rest.chars().all(is_printable));
}

#[test]
fn messages_about_files_and_arguments_are_visible() {
    for evil in HOSTILE.map(|evil| evil.replace(['\0', '/'], "_")) {
        let here = Here::new(&evil);
        let (file, wrong) = (format!("{evil}.memtrace"), format!("{evil}.pickle"));
        // A file system may refuse the name.
        if fs::copy(here.path("evil.memtrace"), here.path(&file)).is_ok() {
            here.prints(&["report", &file]);
            here.prints(&["flamegraph", &file]);
            here.prints(&["view", &file, "--no-open"]);
            here.fails(2, &["run", "--exec", "/bin/true", "--out", &file]);
            fs::write(here.path(&wrong), "no pickle").unwrap();
            here.fails(2, &["report", &wrong]);
            here.prints(&["explain", &file, &evil]);
            here.fails(2, &["explain", &file, &format!("{evil}, but not in it")]);
            let folder = here.path("target/memtrace");
            fs::create_dir_all(&folder).unwrap();
            fs::copy(here.path("evil.memtrace"), folder.join(&file)).unwrap();
            here.prints(&["report"]);
        }
        for arguments in [
            &["report", "-", &evil][..],
            &["report", &evil],
            &["report", "plain.memtrace", "--device", &evil],
            &["report", "plain.memtrace", "--by", &evil],
            &["report", "plain.memtrace", "--at", &format!("scope:{evil}")],
            &["report", "plain.memtrace", "--binary", &evil],
            &["report", "plain.memtrace", &format!("--{evil}")],
            &[&evil],
            &["export", "plain.memtrace", "--to", "json", "-o", &format!("{evil}/a/b.json/c")],
            &["export", "plain.memtrace", "--to", &evil],
            &["export", "plain.memtrace", "--to", "csv", "-o", "x", "--label", &evil],
            &["explain", "plain.memtrace", &evil],
            &["doctor", &evil],
            &["run", "--simulate", &evil],
            &["check", "plain.memtrace", "--peak", &evil],
        ] {
            let output = here.run(arguments);
            safe(arguments, &output);
        }
    }
}

#[test]
fn a_name_of_a_file_in_no_encoding_is_visible() {
    let here = Here::new(HOSTILE[0]);
    let name = std::ffi::OsStr::from_bytes(b"\xff\x1b[2J\n::error::.memtrace");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-memtrace"));
    let output = command.args(["memtrace", "report"]).arg(here.folder.path().join(name)).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    safe(&["report"], &output);
}

#[test]
fn changed_baselines_are_shown_with_visible_names() {
    let here = Here::new(HOSTILE[0]);
    let tests = here.folder.path().canonicalize().unwrap().join("tests");
    fs::create_dir(&tests).unwrap();
    let pending = here.path("target/memtrace/baselines").join(tests.strip_prefix("/").unwrap());
    fs::create_dir_all(&pending).unwrap();
    let evil = HOSTILE[2].split('\n').next().unwrap().replace(['\u{85}', '\u{b}', '\u{c}', '\u{2029}'], "");
    fs::write(pending.join("a.peaks.txt"), format!("[{evil}] cpu\u{1b}[2J\npeak 5\n 5  src/\u{202e}{evil}.rs:1 (f)\n"))
        .unwrap();
    let output = here.run(&["baselines", "review"]);
    safe(&["baselines", "review"], &output);
    assert!(String::from_utf8_lossy(&output.stdout).contains("\\u{202e}"), "{output:?}");
    safe(&["baselines", "update"], &here.run(&["baselines", "update"]));
}

#[test]
fn every_svg_is_xml_with_the_names() {
    for evil in HOSTILE {
        let here = Here::new(evil);
        for arguments in [
            &["flamegraph", "evil.memtrace", "--by", "stack"][..],
            &["flamegraph", "evil.memtrace", "--by", "scope"],
            &["flamegraph", "evil.memtrace", "--by", "module"],
            &["flamegraph", "evil.memtrace", "--at", "end", "--count"],
            &["flamegraph", "plain.memtrace", "--device", "cpu", "--diff", "evil.memtrace"],
            &["flamegraph", "evil.memtrace", "--device", "cuda:0", "--diff", "evil.memtrace"],
            &["timeline", "evil.memtrace"],
            &["timeline", "evil.memtrace", "--by", "line"],
            &["timeline", "evil.memtrace", "--by", "operator"],
            &["timeline", "evil.memtrace", "--by", "category", "--device", "cuda:0"],
        ] {
            let output = here.run(&[arguments, &["-o", "-"]].concat());
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            is_xml(&String::from_utf8(output.stdout).unwrap());
        }
        // Operators are recognised by their frames.
        let mut data = recording(evil);
        data.stacks = golden().stacks;
        for name in ["a.svg", "a.operators.svg", "a.categories.svg"] {
            let mut svg = Vec::new();
            memtrace_core::export::Format::of(Path::new(name)).unwrap().write(&data, &mut svg).unwrap();
            is_xml(&String::from_utf8(svg).unwrap());
        }
    }
}

#[track_caller]
fn is_xml(svg: &str) {
    let allowed = |c: &char| matches!(c, '\t' | '\n') || !c.is_control() && !visible::is_obeyed(*c);
    assert_eq!(svg.chars().find(|c| !allowed(c)), None);
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let parsed = roxmltree::Document::parse_with_options(svg, options).unwrap();
    let foreign = parsed.descendants().find(|node| node.tag_name().name() == "b");
    assert_eq!(foreign.map(|node| node.attributes().count()), None, "no element comes from a name");
    assert!(parsed.descendants().any(|node| node.text().is_some_and(|text| text.contains("net"))));
}

#[test]
fn markdown_acts_upon_no_name() {
    for evil in HOSTILE {
        let here = Here::new(evil);
        let by = TABLES.replace(",age", "");
        let text = here.prints(&["diff", "plain.memtrace", "evil.memtrace", "--by", &by, "--threshold", "0", "--md"]);
        for line in text.lines() {
            let prose = without_code(line);
            let acted = ["@", "://", "www.", "$", "#12", "GH-7", ":key:", "1a2b3c4d5"];
            assert_eq!(acted.iter().find(|mark| prose.contains(**mark)), None, "{line}");
            // Bars are the table's or escaped, and so is everything else.
            let specials: String = prose.replace("\\\\", "").split('\\').skip(1).map(|rest| &rest[..1]).collect();
            let bare = ["<", "&", "~", "`", "["]
                .iter()
                .find(|mark| prose.matches(**mark).count() > specials.matches(**mark).count());
            assert_eq!(bare, None, "{prose}");
        }
        let columns = |line: &str| line.matches('|').count() - line.matches("\\|").count();
        let tables: Vec<usize> = text.lines().filter(|line| line.starts_with('|')).map(columns).collect();
        assert!(tables.len() > 10 && tables.iter().all(|count| *count == tables[0]), "{tables:?}");
    }
}

/// The line without its code spans, which begin and end with as many backticks.
fn without_code(line: &str) -> String {
    let (mut prose, mut rest) = (String::new(), line);
    while let Some(at) = rest.match_indices('`').map(|(at, _)| at).find(|at| !rest[..*at].ends_with('\\')) {
        prose.push_str(&rest[..at]);
        let fence = rest[at..].len() - rest[at..].trim_start_matches('`').len();
        let inside = &rest[at + fence..];
        let runs = |text: &str| text.len() - text.trim_start_matches('`').len();
        let end = (0..inside.len())
            .find(|end| {
                inside.is_char_boundary(*end) && !inside[..*end].ends_with('`') && runs(&inside[*end..]) == fence
            })
            .unwrap_or_else(|| panic!("an open span: {line}"));
        rest = &inside[end + fence..];
    }
    prose + rest
}

#[test]
fn spreadsheets_compute_no_cell_and_data_frames_get_the_text_back() {
    for evil in HOSTILE {
        let here = Here::new(evil);
        here.prints(&[
            "export",
            "evil.memtrace",
            "--to",
            "csv",
            "-o",
            "runs",
            "--label",
            "a==1+1",
            "--label",
            "@b=-2.5",
        ]);
        let run = fs::read_dir(here.path("runs")).unwrap().next().unwrap().unwrap().path();
        let read = |name: &str| fs::read_to_string(run.join(name)).unwrap();
        assert!(read("labels.csv").contains(",a,'=1+1\n") && read("labels.csv").contains(",'@b,-2.5\n"));
        for file in fs::read_dir(&run).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            let computed =
                |cell: &&String| cell.trim_start().starts_with(['=', '+', '-', '@']) && cell.parse::<f64>().is_err();
            assert_eq!(cells(&text).iter().find(computed), None);
        }
        let programs = cells(&read("runs.csv"));
        let program = programs.iter().find(|cell| cell.starts_with("'=")).unwrap();
        assert_eq!(program[1..], recording(evil).process.program);
    }
}

/// The cells of a CSV file (RFC 4180).
fn cells(text: &str) -> Vec<String> {
    let (mut cells, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
    // Within quotes, two quotes are one.
    for c in text.replace("\"\"", "\u{f8ff}").chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            '\u{f8ff}' if is_quoted => cell.push('"'),
            '\u{f8ff}' => {}
            ',' | '\n' if !is_quoted => cells.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
    }
    cells
}
