//! Places in a terminal's text that can be clicked: `src/model.rs:7` becomes a hyperlink (OSC 8) to the file, if it is there.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The variable with the form of a link's address.
const VARIABLE: &str = "MEMTRACE_HYPERLINKS";
/// What terminals open with the program for that kind of file; kitty and others understand the line.
const FILE: &str = "file://{host}{path}#{line}";

/// Where links go, and the folders that relative paths may begin in.
pub(crate) struct Links {
    form: String,
    host: String,
    folders: Vec<PathBuf>,
}

impl Links {
    /// For a terminal; `None` if the environment wants none.
    pub(crate) fn of_terminal(working_dir: Option<&str>) -> Option<Self> {
        let is_dumb = std::env::var("TERM").is_ok_and(|terminal| terminal == "dumb");
        let form = match std::env::var(VARIABLE) {
            Ok(form) => form_of(&form)?,
            Err(_) if is_dumb => return None,
            Err(_) => FILE.to_owned(),
        };
        let current = std::env::current_dir().ok();
        let folders = working_dir.map(PathBuf::from).into_iter().chain(current).collect();
        Some(Self { form, host: rustix::system::uname().nodename().to_string_lossy().into_owned(), folders })
    }

    /// The text with links. What is shown stays the same.
    pub(crate) fn put_into(&self, text: &str) -> String {
        let (mut out, mut known) = (String::with_capacity(text.len()), HashMap::new());
        for word in text.split_inclusive(char::is_whitespace) {
            let Some((before, path, line, after)) = place(word) else {
                out.push_str(word);
                continue;
            };
            match known.entry(path).or_insert_with(|| self.file(path)) {
                Some(file) => {
                    let address = self.address(file, line);
                    let _ = write!(out, "{before}\x1b]8;;{address}\x1b\\{path}:{line}\x1b]8;;\x1b\\{after}");
                }
                None => out.push_str(word),
            }
        }
        out
    }

    /// The file of a path; nothing if it is not there.
    fn file(&self, path: &str) -> Option<PathBuf> {
        // Paths of a workspace's packages begin in its folder, above the package's.
        let mut files = self.folders.iter().flat_map(|folder| folder.ancestors()).map(|folder| folder.join(path));
        files.find(|file| file.is_absolute() && file.is_file())
    }

    fn address(&self, file: &Path, line: &str) -> String {
        let path = escaped(&file.to_string_lossy());
        self.form.replace("{host}", &escaped(&self.host)).replace("{line}", line).replace("{path}", &path)
    }
}

/// The form of an address that a word asks for.
fn form_of(word: &str) -> Option<String> {
    match word {
        "" | "none" => None,
        "file" => Some(FILE.to_owned()),
        "vscode" | "vscodium" | "cursor" | "windsurf" | "zed" => Some(format!("{word}://file{{path}}:{{line}}")),
        // Nothing may end the sequence early.
        form => Some(form.chars().filter(|char| !char.is_control()).collect()),
    }
}

/// A word's path of a source file and its line, with what is before and after.
fn place(word: &str) -> Option<(&str, &str, &str, &str)> {
    let begins = word.find(|char: char| char != '(')?;
    let (before, rest) = word.split_at(begins);
    rest.match_indices(':').find_map(|(at, _)| {
        let (path, behind) = (&rest[..at], &rest[at + 1..]);
        let (line, after) = behind.split_at(behind.bytes().take_while(u8::is_ascii_digit).count());
        let is_place = Path::new(path).extension().is_some() && !line.is_empty();
        let ends = after.chars().next().is_none_or(|char| !char.is_alphanumeric());
        (is_place && ends).then_some((before, path, line, after))
    })
}

/// What may stand in an address, all else as `%` and two digits.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' | b'+' => out.push(byte.into()),
            _ => _ = write!(out, "%{byte:02X}"),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(folder: &Path, form: &str) -> Links {
        Links { form: form_of(form).unwrap(), host: "my host".into(), folders: vec![folder.to_owned()] }
    }

    /// What a terminal shows: without the sequences.
    fn shown(text: &str) -> String {
        let mut parts = text.split("\x1b]8;;");
        let first = parts.next().unwrap().to_owned();
        parts.fold(first, |shown, part| shown + part.split_once("\x1b\\").unwrap().1)
    }

    #[test]
    fn places_of_files_that_are_there_are_links_and_nothing_else_changes() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("src")).unwrap();
        for name in ["src/model.rs", "src/a+b %.py"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let path = folder.path().to_string_lossy().into_owned();
        let text = format!(
            "392.8 MiB  src/model.rs:93 ({{closure#1}}), src/model.rs:7:12 (src/model.rs:8) at src/model.rs:9: x\n\
             src/gone.rs:1  12:30  src/model.rs  src/model.rs:x  src/model.rs:1a  a::b  http://x:80/ {path}/src/model.rs:4.\n"
        );
        let linked = links(folder.path(), "vscode").put_into(&text);
        assert_eq!(shown(&linked), text);
        let found: Vec<&str> =
            linked.split("\x1b]8;;").filter_map(|part| part.split_once("\x1b\\")).map(|part| part.0).collect();
        let expected: Vec<String> = [93, 7, 8, 9, 4]
            .iter()
            .flat_map(|line| [format!("vscode://file{path}/src/model.rs:{line}"), String::new()])
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_address_has_nothing_that_ends_it() {
        let folder = Path::new("/a b");
        assert_eq!(
            links(folder, "file").address(&folder.join("ü\x1b;.rs"), "7"),
            "file://my%20host/a%20b/%C3%BC%1B%3B.rs#7"
        );
        assert_eq!(links(folder, "x:{line}\x1b\\{path}").address(&folder.join("c.rs"), "7"), "x:7\\/a%20b/c.rs");
        assert!(form_of("none").is_none());
    }

    #[test]
    fn any_text_is_shown_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.rs"), "").unwrap();
        let pieces = ["a.rs", ":", "7", " ", "(", "\n", "é", ")", "a.rs:7", "::", "."];
        for seed in 0..4000usize {
            let text: String = (0..8).map(|at| pieces[(seed / 3usize.pow(at)) % pieces.len()]).collect();
            assert_eq!(shown(&links(folder.path(), "file").put_into(&text)), text);
        }
    }
}
