//! Progress indicator: a line on a terminal for work that takes longer than half a second.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use memtrace_core::visible;

/// Shows what the command is doing, until it is dropped.
pub(crate) struct Progress {
    words: Arc<Mutex<String>>,
    /// The thread that writes. It ends when the sender is dropped.
    writer: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Shows this text on the standard error, if that is a terminal.
    pub(crate) fn of(words: impl Into<String>) -> Self {
        let words = Arc::new(Mutex::new(words.into()));
        let is_terminal = std::io::stderr().is_terminal();
        let writer = is_terminal.then(|| write(std::io::stderr(), words.clone(), Duration::from_millis(500)));
        Self { words, writer }
    }

    /// Changes the text.
    pub(crate) fn now(&self, words: String) {
        *self.words.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.writer.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

fn write(
    mut out: impl Write + Send + 'static,
    words: Arc<Mutex<String>>,
    begin_after: Duration,
) -> (Sender<()>, JoinHandle<()>) {
    const EACH: Duration = Duration::from_millis(100);
    let (end, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let (mut wait, mut is_shown) = (begin_after, false);
        while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            let words = words.lock().unwrap_or_else(PoisonError::into_inner).clone();
            is_shown = write!(out, "\rmemtrace: {}\x1b[K", visible::line(&words)).and_then(|()| out.flush()).is_ok();
            wait = EACH;
        }
        if is_shown {
            let _ = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
    });
    (end, thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Terminal(Arc<Mutex<Vec<u8>>>);

    impl Write for Terminal {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The bytes that a terminal gets while some work runs. The work ends once the terminal has this many bytes.
    fn screen(begin_after: Duration, bytes: usize) -> String {
        let terminal = Terminal::default();
        let words = Arc::new(Mutex::new("reading a\u{1b}[2J\nb".to_owned()));
        let progress = Progress { writer: Some(write(terminal.clone(), words.clone(), begin_after)), words };
        while terminal.0.lock().unwrap().len() < bytes {
            std::thread::yield_now();
        }
        drop(progress);
        let text = terminal.0.lock().unwrap().clone();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn only_long_work_is_shown_and_the_line_is_cleared() {
        let long = screen(Duration::from_millis(1), 1);
        assert!(
            long.starts_with("\rmemtrace: reading a\\u{1b}[2J\\nb\x1b[K") && long.ends_with("\r\x1b[K"),
            "{long:?}"
        );
        assert_eq!(screen(Duration::from_secs(60), 0), "");
    }
}
