//! Clickable places in a terminal's text: `src/model.rs:7` becomes a hyperlink (OSC 8) to the file, if it exists.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use memtrace_core::export::LinkForm;

/// The variable that chooses the form of a link's address.
const VARIABLE: &str = "MEMTRACE_HYPERLINKS";

/// The form of the links, and the folders in which relative paths may begin.
pub(crate) struct Links {
    form: LinkForm,
    host: String,
    folders: Vec<PathBuf>,
}

impl Links {
    /// Links for a terminal; `None` if the environment turns them off.
    pub(crate) fn of_terminal(working_dir: Option<&str>) -> Option<Self> {
        let is_dumb = std::env::var("TERM").is_ok_and(|terminal| terminal == "dumb");
        let form = match std::env::var(VARIABLE) {
            Ok(word) => LinkForm::named(&word)?,
            Err(_) if is_dumb => return None,
            Err(_) => LinkForm::file(),
        };
        let current = std::env::current_dir().ok();
        let folders = working_dir.map(PathBuf::from).into_iter().chain(current).collect();
        Some(Self { form, host: rustix::system::uname().nodename().to_string_lossy().into_owned(), folders })
    }

    /// The text with links. The visible text stays the same.
    pub(crate) fn put_into(&self, text: &str) -> String {
        let (mut out, mut known) = (String::with_capacity(text.len()), HashMap::new());
        for word in text.split_inclusive(char::is_whitespace) {
            let Some((before, path, line, after)) = place(word) else {
                out.push_str(word);
                continue;
            };
            match known.entry(path).or_insert_with(|| self.file(path)) {
                Some(file) => {
                    let address = self.form.address(&self.host, file, line);
                    let _ = write!(out, "{before}\x1b]8;;{address}\x1b\\{path}:{line}\x1b]8;;\x1b\\{after}");
                }
                None => out.push_str(word),
            }
        }
        out
    }

    /// The file of a path; `None` if it does not exist.
    fn file(&self, path: &str) -> Option<PathBuf> {
        // In a workspace, the paths begin in the workspace's folder, which lies above the package's folder.
        let mut files = self.folders.iter().flat_map(|folder| folder.ancestors()).map(|folder| folder.join(path));
        files.find(|file| file.is_absolute() && file.is_file())
    }
}

/// The path of a source file and its line in a word, with the text before and after them.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn links(folder: &Path, form: &str) -> Links {
        Links { form: LinkForm::named(form).unwrap(), host: "my host".into(), folders: vec![folder.to_owned()] }
    }

    /// The visible text: without the escape sequences.
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
