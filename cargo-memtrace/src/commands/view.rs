//! `view`: the offline page of a recording, or of two, opened in a browser.

use std::io::IsTerminal;
use std::path::Path;
use std::process::{Command, Stdio};

use memtrace_core::export::HtmlPage;

use crate::cli::ViewArgs;
use crate::failure::CommandFailure;
use crate::{input, output};

pub(crate) fn view(args: &ViewArgs) -> Result<(), CommandFailure> {
    let first = input::read(args.file.as_deref())?;
    let second = args.other.as_deref().map(|other| input::read(Some(other))).transpose()?;
    let (shown, before) = match &second {
        Some(after) => (after, Some(&first.data)),
        None => (&first, None),
    };
    let page = HtmlPage { max_bytes: Some(args.max_size), before, sources: args.sources };
    let path = output::named(args.output.as_ref(), &shown.path, "html")?;
    let made = output::made(&shown.data, &page, &path)?;
    let wanted = args.open || !args.no_open && std::io::stdout().is_terminal() && has_display();
    match made.filter(|_| wanted) {
        Some(path) => open(&path),
        None => Ok(()),
    }
}

/// On Linux and BSD a browser needs a display.
fn has_display() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    cfg!(target_os = "macos") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

/// The browser that BROWSER names, or the desktop's.
fn open(page: &Path) -> Result<(), CommandFailure> {
    let desktop = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let browser = std::env::var_os("BROWSER").filter(|browser| !browser.is_empty()).unwrap_or_else(|| desktop.into());
    let page = std::path::absolute(page).unwrap_or_else(|_| page.to_owned());
    let mut command = Command::new(&browser);
    command.arg(&page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop).map_err(|error| {
        let (browser, page) = (browser.to_string_lossy(), page.display());
        CommandFailure::usage(format!("cannot start {browser} ({error}); open {page} in a browser"))
    })
}
