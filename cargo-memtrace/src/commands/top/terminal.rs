//! The terminal: reads keys one by one, and has a screen that restores what was there before. It uses plain ANSI escape
//! codes, which every terminal of the last decades supports (docs/decisions/0037-top.md).

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::view::Press;

/// Switches to the alternate screen, without a cursor and without wrapping.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// The bytes of an escape sequence arrive together. An escape character that is alone for this time is the Escape key.
const AFTER_ESCAPE: Duration = Duration::from_millis(20);

/// The terminal in the mode that the screen needs. Dropping this restores its mode.
pub(super) struct Terminal {
    before: Termios,
    ended: Arc<AtomicBool>,
}

impl Terminal {
    pub(super) fn begin() -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, ended.clone())?;
        }
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        // Ctrl-C is a key here. Ctrl-Z is off, because it would leave the terminal in this mode.
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
        raw.input_modes -= InputModes::IXON | InputModes::ICRNL;
        (raw.special_codes[SpecialCodeIndex::VMIN], raw.special_codes[SpecialCodeIndex::VTIME]) = (0, 0);
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let terminal = Self { before, ended };
        write(ENTER)?;
        Ok(terminal)
    }

    /// The current number of columns and lines.
    pub(super) fn size() -> (usize, usize) {
        terminal_size::terminal_size().map_or((80, 24), |(width, height)| (width.0.into(), height.0.into()))
    }

    /// Replaces the screen with these lines.
    pub(super) fn draw(lines: &[String]) -> io::Result<()> {
        let body = lines.join("\x1b[K\r\n");
        write(&format!("\x1b[H{body}\x1b[K\x1b[J"))
    }

    /// The keys that were pressed, after at most this time. A signal that ends the command counts as Ctrl-C.
    pub(super) fn presses(&self, wait: Duration) -> io::Result<Vec<Press>> {
        let mut bytes = Vec::new();
        let mut wait = wait;
        while is_ready(wait)? {
            let mut buffer = [0; 256];
            match rustix::io::read(io::stdin(), &mut buffer)? {
                // The terminal no longer exists.
                0 => return Ok(vec![Press::Interrupt]),
                read => bytes.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            }
            wait = if bytes.ends_with(b"\x1b") { AFTER_ESCAPE } else { Duration::ZERO };
        }
        let ended = self.ended.load(Ordering::Relaxed).then_some(Press::Interrupt);
        Ok(presses_of(&bytes).into_iter().chain(ended).collect())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

fn is_ready(wait: Duration) -> io::Result<bool> {
    let (stdin, timeout) = (io::stdin(), Timespec::try_from(wait).map_err(io::Error::other)?);
    match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        // A signal interrupted the wait.
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The keys that bytes from a terminal stand for. Sequences of other keys are ignored.
pub(super) fn presses_of(bytes: &[u8]) -> Vec<Press> {
    let text = String::from_utf8_lossy(bytes);
    let (mut presses, mut rest) = (Vec::new(), text.chars());
    while let Some(char) = rest.next() {
        presses.extend(match char {
            '\x1b' => {
                let (press, after) = escaped(rest.as_str());
                rest = after.chars();
                press
            }
            '\x03' => Some(Press::Interrupt),
            '\r' | '\n' => Some(Press::Enter),
            '\x08' | '\x7f' => Some(Press::Backspace),
            char if char.is_control() => None,
            char => Some(Press::Char(char)),
        });
    }
    presses
}

/// Parses the text after an escape character: the key, and the rest of the text.
fn escaped(after: &str) -> (Option<Press>, &str) {
    let Some(sequence) = after.strip_prefix(['[', 'O']) else { return (Some(Press::Escape), after) };
    let end = sequence.find(|c: char| ('@'..='~').contains(&c)).unwrap_or(sequence.len());
    let (_, last) = sequence.split_at(end);
    let press = match last.chars().next() {
        Some('A' | 'D') => Some(Press::Previous),
        Some('B' | 'C') => Some(Press::Next),
        _ => None,
    };
    (press, last.get(1..).unwrap_or_default())
}
