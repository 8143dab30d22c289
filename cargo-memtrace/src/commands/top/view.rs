//! The choices that the user made with keys, and the screen as lines. It does not know the terminal.

use std::time::Duration;

use memtrace_core::analysis::Key;
use memtrace_core::export::Text;
use memtrace_core::report::{LookOptions, Report, WatchedFile};
use memtrace_core::visible;

/// A key of the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Press {
    Char(char),
    Enter,
    Backspace,
    Escape,
    Previous,
    Next,
    Interrupt,
}

/// What to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Draw the picture again.
    Draw,
    /// Read the files again now, without waiting for the next look.
    Look,
    End,
}

const HELP: [&str; 9] = [
    "q, Ctrl-C     end",
    "s             sort by bytes, growth, count",
    "/             filter: only rows with this text",
    "Esc           clear the filter",
    "space         freeze the picture, and go on",
    "b             what rows stand for: the next one",
    "arrows        choose a rank",
    "?             these lines",
    "Growth is the bytes now minus those at the first look by this key.",
];

/// What is shown.
pub(super) struct View {
    options: LookOptions,
    files: Vec<WatchedFile>,
    /// The files as they were when the user froze the picture; `None` if it is not frozen.
    frozen: Option<Vec<WatchedFile>>,
    is_typing: bool,
    is_help: bool,
    keys: Vec<Key>,
    pub(super) pace: Pace,
}

/// How often files are looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// The time from look to look that the user asked for.
    pub(super) interval: Duration,
    /// How long the last look took.
    pub(super) cost: Duration,
}

impl Pace {
    /// The time from the start of one look to the start of the next. The look takes at most a tenth of this
    /// time.
    pub(super) fn wait(self) -> Duration {
        self.interval.max(10 * self.cost)
    }

    fn words(self) -> String {
        let [interval, wait, cost] = [self.interval, self.wait(), self.cost].map(|time| time.as_secs_f64());
        match wait > interval {
            true => format!("every {wait:.1} s, not {interval} s: a look takes {cost:.2} s"),
            false => format!("every {interval} s"),
        }
    }
}

impl View {
    pub(super) fn by(key: Key, interval: Duration) -> Self {
        Self {
            options: LookOptions { by: key, ..LookOptions::default() },
            files: Vec::new(),
            frozen: None,
            is_typing: false,
            is_help: false,
            keys: vec![key],
            pace: Pace { interval, cost: Duration::ZERO },
        }
    }

    /// The keys that each look must read: all keys that were shown, so that their growth is known.
    pub(super) fn keys(&self) -> &[Key] {
        &self.keys
    }

    pub(super) fn see(&mut self, files: Vec<WatchedFile>) {
        self.files = files;
    }

    /// True if no look has finished yet.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// True if no process writes any of the files any more.
    pub(super) fn has_ended(&self) -> bool {
        !self.files.is_empty() && self.files.iter().all(|file| file.has_ended)
    }

    /// Why nothing can be shown: no file could ever be read.
    pub(super) fn problem(&self) -> Option<&str> {
        let is_unread = self.files.iter().all(|file| file.looks.is_none());
        self.files.first().filter(|_| is_unread)?.problem.as_deref()
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    pub(super) fn press(&mut self, press: Press) -> Answer {
        match press {
            Press::Interrupt => return Answer::End,
            _ if std::mem::take(&mut self.is_help) => {}
            Press::Escape => (self.is_typing, _) = (false, self.options.filter.clear()),
            Press::Previous => self.choose(self.options.chosen.saturating_sub(1)),
            Press::Next => self.choose(self.options.chosen + 1),
            _ if self.is_typing => self.typed(press),
            Press::Char(char) => return self.command(char),
            Press::Enter | Press::Backspace => {}
        }
        Answer::Draw
    }

    fn typed(&mut self, press: Press) {
        match press {
            Press::Char(char) => self.options.filter.push(char),
            Press::Backspace => _ = self.options.filter.pop(),
            _ => self.is_typing = false,
        }
    }

    fn command(&mut self, char: char) -> Answer {
        match char {
            'q' => return Answer::End,
            's' => self.options.order = self.options.order.next(),
            '/' => self.is_typing = true,
            ' ' => self.frozen = if self.is_frozen() { None } else { Some(self.files.clone()) },
            'b' => return self.next_key(),
            '?' | 'h' => self.is_help = true,
            _ => {}
        }
        Answer::Draw
    }

    fn choose(&mut self, rank: usize) {
        self.options.chosen = rank.min(self.files().len().saturating_sub(1));
    }

    fn next_key(&mut self) -> Answer {
        let next = (self.options.by as usize + 1) % Key::ALL.len();
        self.options.by = Key::ALL.get(next).copied().unwrap_or_default();
        if self.keys.contains(&self.options.by) {
            return Answer::Draw;
        }
        self.keys.push(self.options.by);
        Answer::Look
    }

    fn files(&self) -> &[WatchedFile] {
        self.frozen.as_ref().unwrap_or(&self.files)
    }

    /// The screen: the picture, and a line with the choices.
    pub(super) fn screen(&self, width: usize, height: usize) -> Vec<String> {
        let room = height.saturating_sub(1);
        let mut lines = if self.is_help { HELP.map(str::to_owned).to_vec() } else { self.picture(width, room) };
        lines.resize(room, String::new());
        lines.push(self.status());
        lines.into_iter().map(|line| line.chars().take(width).collect()).collect()
    }

    /// The picture in at most this many lines, with as many rows as there is room for.
    pub(super) fn picture(&self, width: usize, height: usize) -> Vec<String> {
        if self.files().is_empty() {
            return vec!["Reading …".to_owned()];
        }
        let lines = |rows: usize| -> Vec<String> {
            let options = LookOptions { rows, width, ranks: (height / 3).max(3), ..self.options.clone() };
            let text = Text { width, ..Text::default() }.show(&Report::of_looks(self.files(), &options));
            text.lines().map(str::to_owned).collect()
        };
        let (mut fits, mut too_many) = (1, height.max(2));
        while too_many - fits > 1 {
            let rows = usize::midpoint(fits, too_many);
            if lines(rows).len() <= height { fits = rows } else { too_many = rows }
        }
        let mut lines = lines(fits);
        lines.truncate(height);
        lines
    }

    fn status(&self) -> String {
        let LookOptions { by, order, filter, .. } = &self.options;
        let filter = visible::line(filter);
        if self.is_typing {
            return format!("filter: {filter}_  (Enter keeps it, Esc clears it)");
        }
        let mut parts = vec![format!("by {by}, sorted by {order}")];
        if !filter.is_empty() {
            parts.push(format!("filter: {filter}"));
        }
        if self.is_frozen() {
            parts.push(if self.has_ended() { "FROZEN, and ended" } else { "FROZEN" }.to_owned());
        }
        parts.extend([self.pace.words(), "q ends, ? helps".to_owned()]);
        parts.join("; ")
    }
}
