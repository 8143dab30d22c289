//! `view`: the offline page of a recording, or of two, opened in a browser.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::slice;

use clap::Args;
use memtrace_core::export::{HtmlPage, LinkForm};

use crate::failure::CommandFailure;
use crate::one_rank::{OneFile, RankArgs, one_of};
use crate::{input, moment, output};

/// Make the offline page of a recording, and open it in a browser
#[derive(Args)]
#[command(after_help = "The page is one file. It needs no network and no memtrace: send it to whom you like.

Examples:
  cargo memtrace view
  cargo memtrace view run.memtrace -o report.html --no-open
  cargo memtrace view before.memtrace after.memtrace      what changed, too
  cargo memtrace view snapshot.pickle                     a snapshot of PyTorch
  cargo memtrace view ranks/ --rank 3                     one rank of several, or the one with the largest peak
  cargo memtrace view a0.memtrace a1.memtrace --after b0.memtrace b1.memtrace    of the worst rank what changed")]
pub(crate) struct ViewArgs {
    /// The recording [default: the newest one under cargo's target folder]; two are before and after a change; more, or a
    /// folder of them, are ranks
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The recording after the change, or those of the ranks
    #[arg(long, value_name = "FILE", num_args = 1..)]
    after: Vec<PathBuf>,
    /// The HTML file, or - for the standard output [default: beside FILE]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Open the page in a browser, also if this is no terminal
    #[arg(long)]
    open: bool,
    /// Do not open the page
    #[arg(long, conflicts_with = "open")]
    no_open: bool,
    /// Largest size of the page; beyond it, small blocks are left out
    #[arg(long, value_name = "SIZE", default_value = "32 MiB", value_parser = moment::size)]
    max_size: u64,
    /// Embed the source text around your own lines; anyone with the page can read it
    #[arg(long)]
    sources: bool,
    /// Link your own lines to an editor: vscode, vscodium, cursor, windsurf, zed, file, or an address with {path} and {line};
    /// anyone with the page can read where the files are
    #[arg(long, value_name = "EDITOR", value_parser = link_form)]
    links: Option<LinkForm>,
    #[command(flatten)]
    rank: RankArgs,
}

pub(crate) fn run(args: &ViewArgs) -> Result<(), CommandFailure> {
    let (first, second) = sides(args)?;
    let first_read = input::read(first.path.as_deref())?;
    let second_read = second.as_ref().map(|second| input::read(second.path.as_deref())).transpose()?;
    let (shown, before) = match &second_read {
        Some(after) => (after, Some(&first_read.data)),
        None => (&first_read, None),
    };
    let page = HtmlPage { max_bytes: Some(args.max_size), before, sources: args.sources, links: args.links.clone() };
    let path = output::named(args.output.as_ref(), &shown.path, "html")?;
    let made = output::made(&shown.data, &page, &path)?;
    let wanted = args.open || !args.no_open && std::io::stdout().is_terminal() && has_display();
    if let Some(path) = made.filter(|_| wanted) {
        open(&path)?;
    }
    second.map_or(Ok(()), |second| second.all_read).and(first.all_read)
}

fn link_form(word: &str) -> Result<LinkForm, String> {
    LinkForm::named(word).ok_or_else(|| "names no editor".to_owned())
}

/// The files to read. For ranks before and after a change, both files are of the same rank, which is chosen among the
/// ranks after the change.
fn sides(args: &ViewArgs) -> Result<(OneFile, Option<OneFile>), CommandFailure> {
    let (before, after) = match (&args.files[..], &args.after[..]) {
        (files, []) if files.len() != 2 => return Ok((one_of(files, args.rank, None)?, None)),
        ([before, after], []) => (slice::from_ref(before), slice::from_ref(after)),
        sides => sides,
    };
    let are_several = |named: &[PathBuf]| input::files(named).map(|files| files.len() > 1);
    let (old, new) = (are_several(before)?, are_several(after)?);
    // If only one side has ranks, `--rank` does not apply to the other side's file.
    let chosen =
        |are_several, rank: Option<u32>| RankArgs { rank: rank.filter(|_| are_several || !old && !new), ..args.rank };
    let second = one_of(after, chosen(new, args.rank.rank), None)?;
    let first = one_of(before, chosen(old, args.rank.rank.or(second.rank)), None)?;
    Ok((first, Some(second)))
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
