//! Addresses of places in source files. A link with such an address, in a terminal or on a page, opens the place in an
//! editor.

use std::fmt::Write as _;
use std::path::Path;

/// The form of a link's address, in which `{path}` and `{line}` are placeholders for the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkForm(String);

impl LinkForm {
    /// The form for an editor (`vscode`, `vscodium`, `cursor`, `windsurf`, `zed`) or for `file`. Any other text is the
    /// form itself. `None` for `none` and for an empty text.
    pub fn named(word: &str) -> Option<Self> {
        match word {
            "" | "none" => None,
            "file" => Some(Self::file()),
            "vscode" | "vscodium" | "cursor" | "windsurf" | "zed" => {
                Some(Self(format!("{word}://file{{path}}:{{line}}")))
            }
            // A control character could end a terminal's escape sequence early.
            form => Some(Self(form.chars().filter(|char| !char.is_control()).collect())),
        }
    }

    /// The form that opens the file with the default program for its kind. kitty and some other terminals also use the
    /// line.
    pub fn file() -> Self {
        Self("file://{host}{path}#{line}".to_owned())
    }

    /// The address of a line of a file. Only some forms contain the name of the machine, `host`.
    pub fn address(&self, host: &str, path: &Path, line: &str) -> String {
        let path = escaped(&path.to_string_lossy());
        self.0.replace("{host}", &escaped(host)).replace("{line}", line).replace("{path}", &path)
    }
}

/// Escapes all characters that must not occur in an address as `%` and two digits.
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

    #[test]
    fn an_address_has_nothing_that_ends_it() {
        let address = |form: &str, name: &str| {
            LinkForm::named(form).unwrap().address("my host", &Path::new("/a b").join(name), "7")
        };
        assert_eq!(address("file", "ü\x1b;.rs"), "file://my%20host/a%20b/%C3%BC%1B%3B.rs#7");
        assert_eq!(address("vscode", "{line}.rs"), "vscode://file/a%20b/%7Bline%7D.rs:7");
        assert_eq!(address("x:{line}\x1b\\{path}", "c.rs"), "x:7\\/a%20b/c.rs");
        assert_eq!((LinkForm::named("none"), LinkForm::named("")), (None, None));
    }
}
